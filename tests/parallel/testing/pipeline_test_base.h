// The fixture of tests whose ranks are the stages of a pipeline.
#ifndef COHORT_TESTS_PARALLEL_TESTING_PIPELINE_TEST_BASE_H_
#define COHORT_TESTS_PARALLEL_TESTING_PIPELINE_TEST_BASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/tensor/tensor.h"
#include "base/testing/random_tensor.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/pipeline/pipeline.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {

class PipelineFixture : public ParallelTest {
 protected:
  // Elements of a tensor so large that the sender asks the receiver first.
  static constexpr int64_t kLarge = 30000;

  void MakeStages(int size, const parallel::PipelineOptions& options = {},
                  const parallel::MessagesOptions& messages_options = {}) {
    pipelines_.clear();
    messages_.clear();
    MakeGroup(size);
    for (int r = 0; r < size; ++r) {
      messages_.push_back(std::make_unique<parallel::Messages>(rank(r), messages_options));
      pipelines_.push_back(std::make_unique<parallel::Pipeline>(*messages_.back(), options));
    }
  }
  void TearDown() override {
    pipelines_.clear();
    messages_.clear();
    ParallelTest::TearDown();
  }
  parallel::Pipeline& of(client::Group& group) {
    return *pipelines_[static_cast<size_t>(group.rank())];
  }
  parallel::Messages& messages(client::Group& group) {
    return *messages_[static_cast<size_t>(group.rank())];
  }

  // Types, shapes and elements depend on the seed; the first `large` tensor is so large that the
  // sender asks first.
  static parallel::Tensors Expected(uint32_t seed, bool large) {
    std::mt19937 random(seed * 7919 + (large ? 1 : 0));
    parallel::Tensors tensors;
    for (size_t count = 1 + random() % 3; count > 0; --count) {
      Shape shape;
      for (size_t dims = random() % 3; dims > 0; --dims) shape.push_back(random() % 4);
      if (large && tensors.empty()) shape = {3, kLarge};
      const DataType type = kDataTypes[random() % kDataTypes.size()];
      tensors.push_back(Tensor::Zeros(type, shape));
      auto* const bytes = static_cast<unsigned char*>(tensors.back().data());
      for (int64_t i = 0; i < tensors.back().bytes(); ++i) {
        bytes[i] = static_cast<unsigned char>(random());
      }
    }
    return tensors;
  }
  static parallel::Tensors Make(client::Group& group, uint32_t seed, bool large) {
    parallel::Tensors tensors = Expected(seed, large);
    for (Tensor& tensor : tensors) tensor = Upload(group, tensor);
    return tensors;
  }
  static absl::Status Same(client::Group& group, const std::optional<parallel::Tensors>& got,
                           const parallel::Tensors& want) {
    if (!got.has_value()) return absl::InternalError("none was received");
    if (got->size() != want.size()) return absl::InternalError("another number of tensors");
    for (size_t i = 0; i < want.size(); ++i) {
      const Tensor& tensor = (*got)[i];
      if (tensor.type() != want[i].type() || tensor.shape() != want[i].shape()) {
        return absl::InternalError(absl::StrCat(tensor.ToString(), " for ", want[i].ToString()));
      }
      if (!tensor.contiguous()) return absl::InternalError("a strided result");
      if (ElementsOf(Download(group, tensor)) != ElementsOf(want[i])) {
        return absl::InternalError(absl::StrCat("rank ", group.rank(), ": other elements of ", i));
      }
    }
    return absl::OkStatus();
  }
  static absl::Status Is(client::Group& group, const std::optional<parallel::Tensors>& got,
                         uint32_t seed, bool large) {
    return Same(group, got, Expected(seed, large));
  }

  // The seed of forward (0) or backward (1) transfer `step` from `rank`.
  static uint32_t Seed(int rank, int direction, int step = 0) {
    return static_cast<uint32_t>((step * 16 + rank) * 2 + direction + 1);
  }

 private:
  std::vector<std::unique_ptr<parallel::Messages>> messages_;
  std::vector<std::unique_ptr<parallel::Pipeline>> pipelines_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_PARALLEL_TESTING_PIPELINE_TEST_BASE_H_
