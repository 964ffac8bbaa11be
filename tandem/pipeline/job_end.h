// How a job of a step's ended, as its node tells: a small file beside the job's note, which says of which
// attempt it is.
#pragma once

#include "tandem/pipeline/cluster_job.h"

namespace tandem::pipeline {

void write_end(const std::filesystem::path& note_file, const JobNote& note, const JobEnd& end);
void remove_end(const std::filesystem::path& note_file);

}  // namespace tandem::pipeline
