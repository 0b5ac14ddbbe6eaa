/// \file
/// A profile on a GPU: an event after each command.
#include "lockstep/training/report/profile.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/cuda.hpp"
#include "support/profiled_model.hpp"
#include "support/refusal.hpp"
#include "support/scaled.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;
using testing::find_row;

namespace {

OneDevice<Cuda> gpu_with(const CudaOptions& options) { return {.on = {0, options}}; }

/// Its loss scale doubles every second step.
using Growing = testing::Scaled<4, 2, float16>;

struct Cnn : Sequential<Input<12, 12, 1>, Conv2D<8, 3>, ReLU, MaxPooling2D<>, Flatten, Dense<6>,
                        ReLU, Dense<3>> {};
const std::vector<float> images(4 * 144, 0.5f);
const std::vector<std::int32_t> labels = testing::profiled_labels(4);

template <class S>
auto cnn_on(const S& strategy) {
  return Model{Cnn{}, strategy, SparseCategoricalCrossentropy{.from_logits = true},
               SGD{.learning_rate = 0.01f}, Accuracy{}};
}

/// Kernel launches, without copies and memsets.
std::size_t launches(const Profile& profile) {
  double n = 0;
  for (const ProfileRow& row : profile.rows)
    for (const ProfiledCall& c : row.calls)
      n += c.name.starts_with("copy") || c.name == "clear" ? 0 : c.calls;
  return static_cast<std::size_t>(n);
}

}  // namespace

TEST_CASE("a profile on a GPU leaves the model unchanged, bit by bit") {
  testing::TestGpu gpu;
  const SGD sgd{.learning_rate = 0.1f, .momentum = 0.9f};
  const CudaOptions graphs{.deterministic = true}, calls{.graphs = false, .deterministic = true};
  CHECK(testing::profile_leaves_all_as_it_was(gpu_with(graphs), sgd));
  CHECK(testing::profile_leaves_all_as_it_was(gpu_with(calls), sgd));
  const Mirrored<Cuda> two{{{0, graphs}, {0, graphs}}};
  CHECK(testing::profile_leaves_all_as_it_was(two, Adam{.learning_rate = 0.01}));
  const OneDevice<BasicCuda<Growing>> mixed{.on = {0, graphs}};
  CHECK(testing::profile_leaves_all_as_it_was(mixed, sgd));
}

TEST_CASE("a profile on a GPU lists each layer's kernels, as many as a step launches") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("launches are counted on the host only");
  testing::HostGpu& host = *gpu.host();
  for (const bool graphs : {true, false}) {
    auto model = cnn_on(gpu_with({.graphs = graphs, .deterministic = true}));
    model.train_on_batch(images, labels);
    const std::size_t before = host.launches;
    auto counted = cnn_on(gpu_with({.graphs = false, .deterministic = true}));
    counted.train_on_batch(images, labels);
    const std::size_t first = host.launches;
    counted.train_on_batch(images, labels);
    const std::size_t of_a_step = host.launches - first;
    REQUIRE(first > before);

    const std::size_t graph_launches = host.graph_launches;
    const Profile profile = model.profile(images, labels, {}, {.steps = 3, .warm_up = 2});
    CHECK(launches(profile) == of_a_step);
    CHECK((host.graph_launches > graph_launches) == graphs);
    struct Row {
      const char *layer, *pass;
      std::vector<std::string> kernels;
    };
    for (const Row& r :
         {Row{"batch", "data", {"copy to the GPU"}},
          Row{"conv2d+re_lu+max_pooling2d", "forward", {"forward"}},
          Row{"dense+re_lu_1", "forward", {"product"}}, Row{"dense_1", "forward", {"product"}},
          Row{"loss", "loss", {"scores"}}, Row{"dense_1", "backward", {"dense_backward"}},
          Row{"dense+re_lu_1", "backward", {"dense_backward"}},
          Row{"conv2d+re_lu+max_pooling2d", "backward", {"backward"}},
          Row{"sums", "exchange", {"download_and_clear"}},
          Row{"optimizer", "update", {"update"}}}) {
      INFO(r.layer << " " << r.pass << (graphs ? ", graphs" : ", calls"));
      const ProfileRow* const row = find_row(profile, r.layer, r.pass);
      REQUIRE(row != nullptr);
      std::vector<std::string> kernels;
      for (const ProfiledCall& c : row->calls) kernels.push_back(c.name);
      CHECK(kernels == r.kernels);
      if (r.layer == std::string("batch")) CHECK(row->bytes == 4 * (4 * 144 + 4));
      CHECK(row->microseconds == 1e3 * row->calls[0].calls);
    }
    const std::string table = testing::printed(profile);
    CHECK(table.find("│ download_and_clear ") != std::string::npos);
    // Graphs and calls continue as before.
    const std::size_t after = host.graph_launches;
    model.train_on_batch(images, labels);
    CHECK(host.graph_launches == after + (graphs ? 1 : 0));
  }
}

TEST_CASE("the peak of a profile on a GPU is that of float32, and unknown for tensor cores") {
  testing::TestGpu gpu;
  auto model = cnn_on(gpu_with({}));
  const Profile profile = model.profile(images, labels, {}, {.steps = 1});
  CHECK(profile.peak_flops == gpus()[0].float32_flops);
  CHECK(profile.peak_flops > 0);
  for (const ProfileRow& row : profile.rows)
    CHECK((profile.share_of_peak(row) > 0) == (row.flops > 0));
  CHECK(to_string(profile).find(" Peak: ") != std::string::npos);
  CudaContext context = Cuda{0}.open(1, 0);
  CHECK(detail::peak_flops_of<Cuda>(context) == profile.peak_flops);
  CHECK(detail::peak_flops_of<CudaBFloat16>(context) == 0);
}

TEST_CASE("times are measured between events, and of several steps the median counts") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("times are given on the host only");
  auto model = cnn_on(gpu_with({.deterministic = true}));
  const Profile all = model.profile(images, labels, {}, {.steps = 1, .warm_up = 2});
  std::size_t commands = 0;
  for (const ProfileRow& row : all.rows)
    for (const ProfiledCall& c : row.calls) commands += static_cast<std::size_t>(c.calls);
  // For each step: first the interval between two events, then its commands.
  gpu.host()->times.clear();
  for (const float step : {3.0f, 1.0f, 8.0f}) {
    gpu.host()->times.push_back(0.001f * step);
    for (std::size_t i = 0; i < commands; ++i)
      gpu.host()->times.push_back(static_cast<float>(i + 1) * step);
  }
  const Profile profile = model.profile(images, labels, {}, {.steps = 3, .warm_up = 2});
  CHECK(gpu.host()->times.empty());
  CHECK(static_cast<float>(profile.event_microseconds) == 1.0f);
  double milliseconds = 0;
  for (std::size_t i = 0; i < commands; ++i) milliseconds += static_cast<double>(i + 1) * 3;
  CHECK(profile.microseconds() == 1e3 * milliseconds);
  REQUIRE_FALSE(profile.rows.empty());
  CHECK(profile.rows.front().layer == "batch");
  CHECK(profile.rows.back().layer == "optimizer");
  CHECK(profile.rows.back().microseconds == 1e3 * 3 * static_cast<double>(commands));
}

TEST_CASE("work done every fourth step counts a quarter of its time per step") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("times are given on the host only");  // 1 ms each
  Model model{Cnn{}, gpu_with({.deterministic = true}),
              SparseCategoricalCrossentropy{.from_logits = true},
              Adam{.with = {.gradient_accumulation_steps = 4}}};
  const Profile profile = model.profile(images, labels, {}, {.steps = 8});
  const ProfileRow* const update = find_row(profile, "optimizer", "update");
  REQUIRE(update != nullptr);
  double rare = 0, all = 0;
  for (const ProfiledCall& c : update->calls) {
    INFO(c.name);
    CHECK(c.microseconds == 1e3 * c.calls);
    (c.calls == 0.25 ? rare : all) += c.calls;
  }
  CHECK(rare == 0.5);  // the update, and clearing the sums
  CHECK(all == 1);     // the sums
  CHECK(update->microseconds == 1500);
}

TEST_CASE("work that cannot be captured is timed call by call") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("no graph is refused on a real GPU");
  auto model = cnn_on(gpu_with({.deterministic = true}));
  const Profile graphs = model.profile(images, labels, {}, {.steps = 1});
  using namespace detail::cuda;
  Commands::logged = true;
  Driver table = driver();
  table.cuGraphInstantiate = [](CUgraphExec*, CUgraph, unsigned long long) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  const EntryPoints<Driver>::Override instead(table);
  const Profile calls = model.profile(images, labels, {}, {.steps = 1});
  CHECK(launches(calls) == launches(graphs));
  CHECK(calls.microseconds() == graphs.microseconds());
}

TEST_CASE("a profile reports its kernels' error, and is refused in checked mode") {
  testing::TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("no kernel is to fail on a real GPU");
  setenv("LOCKSTEP_CUDA_CHECK", "1", 1);
  {
    auto checked = cnn_on(gpu_with({}));
    const std::size_t before = gpu.host()->launches;
    CHECK(
        testing::refusal<UsageError>([&] { checked.profile(images, labels); }) ==
        "cuda: LOCKSTEP_CUDA_CHECK is 1, and times in checked mode are not those of training; unset "
        "it to profile");
    CHECK(gpu.host()->launches == before);  // no training happened
  }
  unsetenv("LOCKSTEP_CUDA_CHECK");
  auto model = cnn_on(gpu_with({}));
  model.train_on_batch(images, labels);
  gpu.host()->faulty = "update";
  CHECK(testing::refusal<DeviceError>([&] {
          model.profile(images, labels, {}, {.warm_up = 0});
        }).find("LOCKSTEP_CUDA_CHECK=1") != std::string::npos);
}
