// Kernels and their registry. A kernel knows no graph: it gets tensors, attributes, scratch memory and a
// stream. For every op the registry holds an ordered list, fastest first, reference last; the first kernel
// that supports a call's types and shapes is chosen when the step is compiled, and recorded by name.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/base/shape.h"
#include "tandem/base/thread_pool.h"
#include "tandem/ir/attrs.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/op.h"

namespace tandem {

struct TensorArg {
  void* data = nullptr;
  TensorType type;

  int64_t elems() const { return type.shape.elems(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct KernelArgs {
  std::span<const TensorArg> in;   // in the op's order
  std::span<const TensorArg> out;  // an in-place output has its input's address
  const Attrs& attrs;
  std::span<std::byte> workspace;  // at least what Kernel::workspace asked for, 64-byte aligned
};

// Where a kernel runs: on the CPU a thread pool; on a GPU a queue of the device (a cudaStream_t), into which
// kernels put their work without waiting for it.
class Stream {
 public:
  explicit Stream(ThreadPool& pool, void* queue = nullptr) : pool_(pool), queue_(queue) {}
  ThreadPool& pool() const { return pool_; }
  void* queue() const { return queue_; }

 private:
  ThreadPool& pool_;
  void* queue_;
};

// What is known about a call before memory exists: enough to choose a kernel and size its scratch.
struct CallSignature {
  Op op;
  std::vector<TensorType> in;
  std::vector<TensorType> out;
  const Attrs* attrs = nullptr;
};

struct Kernel {
  std::string name;  // "cpu.matmul", "ref.matmul"
  Op op;
  bool (*supports)(const CallSignature& call);
  size_t (*workspace)(const CallSignature& call, int num_threads);  // may be null: none
  void (*run)(const KernelArgs& args, Stream& stream);
  // Called once a command, before its first run, while the tensors hold nothing that is needed: the place to
  // time alternatives. May be null.
  void (*prepare)(const KernelArgs& args, Stream& stream) = nullptr;
};

// An op that a backend has no kernels of yet, or an attribute that its kernels of that op do not know: a
// model that needs it is refused when its step is compiled.
struct Lack {
  Op op;
  std::string_view attr = "";  // empty: the whole op
};

class KernelRegistry {
 public:
  void add(Kernel kernel);  // kernels added first are tried first
  void add_lack(Lack lack) { lacks_.push_back(lack); }
  // Throws ConfigError where something is lacked, DeviceError if no kernel supports the call.
  const Kernel& choose(const CallSignature& call) const;
  const Kernel& by_name(std::string_view name) const;  // throws DeviceError
  std::vector<const Kernel*> for_op(Op op) const;

 private:
  std::vector<Kernel> kernels_;
  std::vector<Lack> lacks_;
};

}  // namespace tandem
