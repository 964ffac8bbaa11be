"""Adds `completionMode: Indexed` to the source of Kubernetes 1.20.2, as later versions have it: the field, its conversions, its check,
and a job controller that numbers pods and makes a failed one anew with its number.

The field has no number in protocol buffers: the API server has to store, and the controller manager to speak, JSON.
"""

import re

FIELDS = {  # of a file's struct
    ("staging/src/k8s.io/api/batch/v1/types.go", "JobSpec"): 'CompletionMode *CompletionMode `json:"completionMode,omitempty"`',
    ("staging/src/k8s.io/api/batch/v1/types.go", "JobStatus"): 'CompletedIndexes string `json:"completedIndexes,omitempty"`',
    ("pkg/apis/batch/types.go", "JobSpec"): "CompletionMode *CompletionMode",
    ("pkg/apis/batch/types.go", "JobStatus"): "CompletedIndexes string",
}

MODE = """
// CompletionMode specifies how Pod completions of a Job are tracked.
type CompletionMode string

const (
	NonIndexedCompletion CompletionMode = "NonIndexed"
	IndexedCompletion    CompletionMode = "Indexed"
)
"""

CHECK = """	if spec.CompletionMode != nil {
		switch *spec.CompletionMode {
		case batch.NonIndexedCompletion:
		case batch.IndexedCompletion:
			if spec.Completions == nil {
				allErrs = append(allErrs, field.Required(fldPath.Child("completions"), "when completion mode is Indexed"))
			}
		default:
			allErrs = append(allErrs, field.NotSupported(fldPath.Child("completionMode"), *spec.CompletionMode, []string{"NonIndexed", "Indexed"}))
		}
	}
"""

# In the controller: what stood there, and what stands there then.
CONTROLLER = (
    ("""	succeeded, failed := getStatus(pods)
""", """	succeeded, failed := getStatus(pods)
	if isIndexed(&job) {
		done := indexesOf(&job, pods, v1.PodSucceeded)
		succeeded = int32(len(done))
		job.Status.CompletedIndexes = formatIndexes(done)
	}
"""),
    ("""		jm.expectations.ExpectCreations(jobKey, int(diff))
		errCh = make(chan error, diff)
""", """		var missing []int
		if isIndexed(job) {
			all, err := jm.getPodsForJob(job)
			if err != nil {
				return active, err
			}
			taken := indexesOf(job, all, v1.PodSucceeded)
			for index := range indexesOf(job, activePods, "") {
				taken[index] = true
			}
			for index := 0; index < int(*job.Spec.Completions) && len(missing) < int(diff); index++ {
				if !taken[index] {
					missing = append(missing, index)
				}
			}
			diff = int32(len(missing))
			if diff == 0 {
				return active, nil
			}
		}
		created := 0
		jm.expectations.ExpectCreations(jobKey, int(diff))
		errCh = make(chan error, diff)
"""),
    ("""			for i := int32(0); i < batchSize; i++ {
				go func() {
					defer wait.Done()
					err := jm.podControl.CreatePodsWithControllerRef(job.Namespace, &job.Spec.Template, job, metav1.NewControllerRef(job, controllerKind))
""", """			for i := int32(0); i < batchSize; i++ {
				template := &job.Spec.Template
				if isIndexed(job) {
					template = indexedTemplate(job, missing[created])
					created++
				}
				go func() {
					defer wait.Done()
					err := jm.podControl.CreatePodsWithControllerRef(job.Namespace, template, job, metav1.NewControllerRef(job, controllerKind))
"""),
    ('	"sort"\n', '	"sort"\n	"strconv"\n	"strings"\n'),
)

CONTROLLER_END = """
const completionIndexKey = "batch.kubernetes.io/job-completion-index"

func isIndexed(job *batch.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batch.IndexedCompletion && job.Spec.Completions != nil
}

// indexesOf returns the indexes of the pods in a phase, of any phase when it is empty.
func indexesOf(job *batch.Job, pods []*v1.Pod, phase v1.PodPhase) map[int]bool {
	found := map[int]bool{}
	for _, pod := range pods {
		index, err := strconv.Atoi(pod.Annotations[completionIndexKey])
		if err == nil && index >= 0 && index < int(*job.Spec.Completions) && (phase == "" || pod.Status.Phase == phase) {
			found[index] = true
		}
	}
	return found
}

// formatIndexes writes indexes as a list in which three or more that follow each other are a range.
func formatIndexes(indexes map[int]bool) string {
	var sorted []int
	for index := range indexes {
		sorted = append(sorted, index)
	}
	sort.Ints(sorted)
	var parts []string
	for first := 0; first < len(sorted); {
		last := first
		for last+1 < len(sorted) && sorted[last+1] == sorted[last]+1 {
			last++
		}
		part := strconv.Itoa(sorted[first])
		if last == first+1 {
			part += "," + strconv.Itoa(sorted[last])
		} else if last > first {
			part += "-" + strconv.Itoa(sorted[last])
		}
		parts = append(parts, part)
		first = last + 1
	}
	return strings.Join(parts, ",")
}

func indexedTemplate(job *batch.Job, index int) *v1.PodTemplateSpec {
	template := job.Spec.Template.DeepCopy()
	number := strconv.Itoa(index)
	if template.Annotations == nil {
		template.Annotations = map[string]string{}
	}
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	template.Annotations[completionIndexKey] = number
	template.Labels[completionIndexKey] = number
	template.Labels["batch.kubernetes.io/job-name"] = job.Name
	template.Spec.Hostname = job.Name + "-" + number
	source := &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['" + completionIndexKey + "']"}}
	for i := range template.Spec.Containers {
		container := &template.Spec.Containers[i]
		container.Env = append(container.Env, v1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: source})
	}
	return template
}
"""


def replaced(text, old, new, where):
    if old not in text:
        raise ValueError(f"{where}: is not the source that this was made for: {old.strip().splitlines()[0]}")
    return text.replace(old, new, 1)


def with_end(text, function, lines, where):
    """The body of a function (a pattern) with lines before its last `return`."""
    body = re.search(rf"func {function}\(.*?\n(\treturn(?: nil)?\n)\}}", text, re.S)
    if not body:
        raise ValueError(f"{where}: has no {function}")
    return text[:body.start(1)] + lines + text[body.start(1):]


def with_field(text, struct, field, where):
    body = re.search(rf"type {struct} struct \{{.*?\n\}}", text, re.S)
    return replaced(text, body[0], f"{body[0][:-2]}\n\n\t// of Indexed Jobs\n\t// +optional\n\t{field}\n}}", where)


def copy_of(target):
    return f"\tif in.CompletionMode != nil {{\n\t\tmode := {target}(*in.CompletionMode)\n\t\tout.CompletionMode = &mode\n\t}}\n"


def add_to(source):
    """`source` is the folder of Kubernetes'. Throws ValueError where it is another version's."""
    def change(name, how):
        path = source / name
        path.write_text(how(path.read_text()))

    for (name, struct), field in FIELDS.items():
        change(name, lambda text, struct=struct, field=field, name=name: with_field(text, struct, field, name))
    for name in {name for name, _ in FIELDS}:
        change(name, lambda text: text + MODE)

    def convert(text):
        for one, other in (("v1", "batch"), ("batch", "v1")):
            text = with_end(text, f"autoConvert_{one}_JobSpec_To_{other}_JobSpec",
                            f"\tout.CompletionMode = (*{other}.CompletionMode)(unsafe.Pointer(in.CompletionMode))\n", "conversion")
            text = with_end(text, f"autoConvert_{one}_JobStatus_To_{other}_JobStatus",
                            "\tout.CompletedIndexes = in.CompletedIndexes\n", "conversion")
        return text

    def convert_by_hand(text):
        outer = "batchv1" if "batchv1" in text else "v1"
        for one, other, target in (("v1", "batch", "batch"), ("batch", "v1", outer)):
            text = with_end(text, f"Convert_{one}_JobSpec_To_{other}_JobSpec", copy_of(f"{target}.CompletionMode"), "conversion")
        return text

    change("pkg/apis/batch/v1/zz_generated.conversion.go", convert)
    change("pkg/apis/batch/v1/conversion.go", convert_by_hand)
    for name in ("staging/src/k8s.io/api/batch/v1/zz_generated.deepcopy.go", "pkg/apis/batch/zz_generated.deepcopy.go"):
        change(name, lambda text, name=name: with_end(text, r"\(in \*JobSpec\) DeepCopyInto", copy_of("CompletionMode"), name))
    limit = "	if spec.BackoffLimit != nil {"
    change("pkg/apis/batch/validation/validation.go", lambda text: replaced(text, limit, CHECK + limit, "validation"))

    def control(text):
        for old, new in CONTROLLER:
            text = replaced(text, old, new, "job_controller")
        return text + CONTROLLER_END

    change("pkg/controller/job/job_controller.go", control)
