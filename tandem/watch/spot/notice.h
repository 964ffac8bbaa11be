// A notice: whoever lends this machine will take it back. Each cloud has its own way to say so.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::spot {

struct Notice {
  std::string text;                 // "AWS: terminate at 2026-04-24T17:11:44Z"
  std::optional<double> at_s = {};  // when the machine goes, in seconds since 1970, where that is known
};

// "2026-04-24T17:11:44Z" and "Fri, 24 Apr 2026 17:11:44 GMT", as seconds since 1970.
std::optional<double> parse_time(std::string_view text);

// What a cloud's metadata server answered. Nothing where there is no notice for this machine; throws
// DataError where the answer is none that is expected.
std::optional<Notice> parse_aws_action(const std::string& body);
std::optional<Notice> parse_gcp_preempted(const std::string& body, double now_s);
std::optional<Notice> parse_azure_events(const std::string& body, const std::string& own_name, double now_s);

// A file that somebody puts there. Its first word may be the seconds that are left from its last change on.
Notice parse_file(const std::string& path, const std::string& content, double changed_s);

}  // namespace tandem::spot
