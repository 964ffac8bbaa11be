// A prefix of an S3 bucket, or of what speaks S3, as a store. The address "s3://bucket/prefix" is the
// description of the store.
#pragma once

#include "tandem/store/s3/answers.h"
#include "tandem/store/s3/client.h"
#include "tandem/store/s3/multipart.h"
#include "tandem/store/store.h"

namespace tandem {

class S3Store final : public Store {
 public:
  bool is_far() const override { return true; }
  S3Store(const std::string& address, const StorageOptions& options,
          s3::Environment environment = s3::this_environment(), s3::TimeLimits limits = {},
          s3::Retries retries = {}, s3::PartBuffers parts = {});

  std::string description(const std::string& name) const override { return client_.address(name); }
  std::unique_ptr<ObjectReader> open(const std::string& name) const override;
  bool exists(const std::string& name) const override;
  std::unique_ptr<ObjectWriter> create(const std::string& name) override;
  std::vector<StoredObject> list(const std::string& prefix) const override;
  void remove(const std::string& name) override;
  int64_t free_bytes() const override;
  bool put_new(const std::string& name, std::string_view text) override;

  void make() override;  // throws where the bucket is not there or not ours to use
  void put(const std::string& name, std::string_view text) override;
  std::vector<std::string> remove_leftovers(const BundleNames& ours) override;
  std::vector<StoredObject> unfinished() const override;
  void remove_unfinished(const StoredObject& object) override;
  void lend_memory(std::span<std::byte> memory) override;
  void give_up() override { client_.give_up(); }

 private:
  std::string name_of(const std::string& key) const;
  std::vector<s3::Upload> uploads() const;

  mutable s3::Client client_;
  s3::PartBuffers parts_;
};

}  // namespace tandem
