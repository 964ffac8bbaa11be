// JobSet's API, jobset.x-k8s.io/v1alpha2, as far as one can set it: nobody publishes its types for TypeScript. The Job
// inside is Kubernetes' own type. What the server checks beside types is checked by kubernetes_schema.py.
import { JobTemplateSpec } from "kubernetes-types/batch/v1";
import { ObjectMeta } from "kubernetes-types/meta/v1";

type FailureReason = "BackoffLimitExceeded" | "DeadlineExceeded" | "FailedIndexes" | "MaxFailedIndexesExceeded" | "PodFailurePolicy";

export interface JobSet {
  apiVersion: "jobset.x-k8s.io/v1alpha2";
  kind: "JobSet";
  metadata: ObjectMeta;
  spec: {
    replicatedJobs: {
      name: string;
      groupName?: string;
      replicas?: number;
      template: JobTemplateSpec;
      dependsOn?: { name: string; status: "Ready" | "Complete" }[];
    }[];
    network?: { enableDNSHostnames?: boolean; subdomain?: string; publishNotReadyAddresses?: boolean };
    successPolicy?: { operator: "All" | "Any"; targetReplicatedJobs?: string[] };
    failurePolicy?: {
      maxRestarts?: number;
      restartStrategy?: "Recreate" | "BlockingRecreate";
      rules?: {
        name: string;
        action: "FailJobSet" | "RestartJobSet" | "RestartJobSetAndIgnoreMaxRestarts";
        onJobFailureReasons?: FailureReason[];
        targetReplicatedJobs?: string[];
      }[];
    };
    suspend?: boolean;
    coordinator?: { replicatedJob: string; jobIndex?: number; podIndex?: number };
    managedBy?: string;
    ttlSecondsAfterFinished?: number;
  };
}
