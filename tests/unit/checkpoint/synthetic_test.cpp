// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/synthetic.h"

#include <algorithm>
#include <cmath>

#include "folder.h"
#include "random_model.h"

using namespace cua;
using checkpoint::Checkpoint;
using test::Folder;

namespace {

void make(const test::fs::path &out, const std::string &shape, uint64_t seed, size_t threads = 1,
          uint32_t vocabulary = 0) {
  checkpoint::SyntheticOptions options;
  options.shape = shape;
  options.seed = seed;
  options.threads = threads;
  options.least_vocabulary = vocabulary;
  options.out = out;
  checkpoint::write_synthetic(options);
}

}  // namespace

TEST_CASE("a synthetic folder opens like a merged one") {
  const Folder folder;
  for (const char *shape : {"tiny", "wide"}) {
    make(folder / shape, shape, 7);
    const Checkpoint made(folder / shape);
    const Checkpoint golden(test::kGolden / shape, checkpoint::MarkerPolicy::optional);
    CHECK(made.model_id() == "synthetic/" + std::string(shape) + "-7");
    CHECK(made.config().vocabulary == golden.config().vocabulary);
    CHECK(made.config().hidden == golden.config().hidden);
    CHECK(made.config().head_dim == golden.config().head_dim);
    CHECK(made.config().rotary_dim == golden.config().rotary_dim);
    CHECK(made.config().gdn_key_dim == golden.config().gdn_key_dim);
    CHECK(made.config().layers == golden.config().layers);
    CHECK(made.tensor("layers.0.linear_attn.A_log").dtype == backend::Dtype::f32);
    CHECK(made.tensor("layers.0.linear_attn.norm.weight").dtype == backend::Dtype::f32);
    CHECK(made.tensor("norm.weight").dtype == backend::Dtype::bf16);
  }
}

TEST_CASE("the same seed gives the same bytes, whatever the number of threads") {
  const Folder folder;
  make(folder / "a", "wide", 3, 1, 12345);
  make(folder / "b", "wide", 3, 4, 12345);
  make(folder / "c", "wide", 4, 4, 12345);
  const std::string a = test::read_bytes(folder / "a/model.safetensors");
  CHECK(a == test::read_bytes(folder / "b/model.safetensors"));
  CHECK(a != test::read_bytes(folder / "c/model.safetensors"));
  CHECK(Checkpoint(folder / "a").config().vocabulary == 12352);  // a multiple of 64
}

TEST_CASE("letter probabilities are far from uniform and change with the prompt") {
  const Folder folder;
  for (const char *shape : {"tiny", "wide"}) {
    make(folder / shape, shape, 5);
    const Checkpoint checkpoint(folder / shape);
    test::Runner<float> runner(
        checkpoint.config(), [&](const std::string &name) -> const auto & {
          return checkpoint.tensor(name);
        });
    // Prompts that end alike, as real ones do.
    const auto end = test::random_ids(20, checkpoint.config().vocabulary, 99);
    std::vector<size_t> winners;
    double spread = 0;
    constexpr size_t kPrompts = 40;
    for (uint32_t i = 0; i < kPrompts; ++i) {
      auto ids = test::random_ids(100, checkpoint.config().vocabulary, i);
      ids.insert(ids.end(), end.begin(), end.end());
      const auto logits = runner.run(ids).logits;
      double sum = 0, squares = 0;
      for (const float logit : logits) {
        sum += logit;
        squares += double{logit} * logit;
      }
      spread += std::sqrt(squares / 26 - sum / 26 * (sum / 26)) / kPrompts;
      winners.push_back(
          static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    std::sort(winners.begin(), winners.end());
    const auto different = std::unique(winners.begin(), winners.end()) - winners.begin();
    CAPTURE(shape, spread, different);
    CHECK(spread > 1.5);
    CHECK(spread < 4);
    CHECK(different >= 3);
  }
}

TEST_CASE("nothing is overwritten, and nothing is left behind") {
  const Folder folder;
  const auto refused = [&](const test::fs::path &out, const std::string &shape) {
    try {
      make(out, shape, 1);
      return int32_t{CUA_OK};
    } catch (const Error &error) {
      return error.code();
    }
  };
  test::fs::create_directory(folder / "full");
  test::write_bytes(folder / "full/file", "x");
  CHECK(refused(folder / "full", "tiny") == CUA_INVALID_ARGUMENT);
  CHECK(test::read_bytes(folder / "full/file") == "x");
  test::write_bytes(folder / "file", "");  // an empty one is no folder
  CHECK(refused(folder / "file", "tiny") == CUA_INVALID_ARGUMENT);
  CHECK(test::fs::is_regular_file(folder / "file"));
  test::fs::create_symlink("nowhere", folder / "dangling");
  CHECK(refused(folder / "dangling", "tiny") == CUA_INVALID_ARGUMENT);
  CHECK(test::fs::is_symlink(folder / "dangling"));
  test::fs::create_directory(folder / "linked");
  test::fs::create_symlink("linked", folder / "link");
  CHECK(refused(folder / "link", "tiny") == CUA_OK);  // made where the link leads
  CHECK(test::fs::is_symlink(folder / "link"));
  CHECK(test::refusal(folder / "linked").code == CUA_OK);
  test::fs::create_directory(folder / "empty");
  CHECK(refused(folder / "empty", "tiny") == CUA_OK);
  CHECK(refused(folder / "deep/er/", "tiny") == CUA_OK);
  CHECK(test::refusal(folder / "deep/er").code == CUA_OK);
  CHECK(refused(folder / "bad", "huge") == CUA_INVALID_ARGUMENT);
  checkpoint::SyntheticOptions options;
  options.shape = "tiny";
  options.out = folder / "copies";
  options.copies = {folder / "not there"};
  CHECK_THROWS_AS(checkpoint::write_synthetic(options), Error);
  std::vector<std::string> left;
  for (const auto &entry : test::fs::directory_iterator(folder.path())) {
    left.push_back(entry.path().filename());
  }
  std::sort(left.begin(), left.end());
  CHECK(left ==
        std::vector<std::string>{"dangling", "deep", "empty", "file", "full", "link", "linked"});
}

TEST_CASE("more threads than the system has, or than there is work for") {
  const Folder folder;
  make(folder / "a", "tiny", 1, 1);
  make(folder / "b", "tiny", 1, size_t{1} << 40);
  CHECK(test::read_bytes(folder / "a/model.safetensors") ==
        test::read_bytes(folder / "b/model.safetensors"));
}

TEST_CASE("an exception out of the progress ends the work and leaves nothing") {
  const Folder folder;
  struct Enough {};
  for (const size_t threads : {1, 4}) {
    checkpoint::SyntheticOptions options;
    options.shape = "wide";
    options.threads = threads;
    options.out = folder / "out";
    options.progress = [](uint64_t done, uint64_t all) {
      if (done * 2 > all) throw Enough();
    };
    CHECK_THROWS_AS(checkpoint::write_synthetic(options), Enough);
    CHECK(test::fs::is_empty(folder.path()));
  }
}
