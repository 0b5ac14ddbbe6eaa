#include "lockstep/model/memory_plan.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/files/json_document.hpp"
#include "lockstep/lockstep.hpp"
#include "unit/layers/resnet.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
using Float = ls::Reference<float>;
using Strings = std::vector<std::string>;

struct Small
    : ls::Sequential<ls::Input<6, 6, 1>, ls::Conv2D<4, 3>, ls::ReLU, ls::Flatten, ls::Dense<5>> {};
struct Branches : ls::Sequential<ls::Input<300>, ls::Dense<30>, ls::BatchNormalization<>, ls::Tanh,
                                 ls::Residual<ls::Sequential<ls::Dense<30>, ls::Tanh>>,
                                 ls::Dropout<ls::rate(0.5f)>, ls::Dense<3>> {};
struct Again
    : ls::Sequential<ls::Input<4>, ls::Dense<40>,
                     ls::Recompute<ls::Sequential<ls::Dense<80>, ls::BatchNormalization<>, ls::Tanh,
                                                  ls::Dropout<ls::rate(0.5f)>, ls::Dense<8>>>,
                     ls::Dense<3>> {};
struct Twice : ls::Sequential<ls::Input<30>, ls::Shared<"key", ls::Dense<30>>, ls::Tanh,
                              ls::Shared<"key", ls::Dense<30>>, ls::Dense<2>> {};
using DenseAdd = toy::Fusing<toy::Rule<ls::DenseOp, ls::AddOp>>;

const ls::ArenaRange* find(const ls::MemoryPlan& plan, const std::string& layer,
                           const std::string& what) {
  for (const ls::ArenaRange& b : plan.buffers)
    if (b.layer == layer && b.what == what) return &b;
  return nullptr;
}
bool lives(const ls::ArenaRange* b, std::size_t from, std::size_t to, std::size_t bytes) {
  return b != nullptr && b->from == from && b->to == to && b->bytes == bytes;
}

/// Checks the invariants of each plan.
template <class Net, class D>
void check_plan(std::size_t examples) {
  constexpr auto& constant = ls::plan<Net, D>;
  const ls::MemoryPlan plan = ls::memory_plan<Net, D>(examples);
  CHECK(plan.examples == examples);
  CHECK(plan.arena_bytes == constant.arena_bytes(examples));
  CHECK(plan.weight_bytes == constant.weight_bytes);
  CHECK(std::find(plan.times.begin(), plan.times.end(), "") == plan.times.end());
  std::size_t top = 0, sum = 0;
  for (const ls::ArenaRange& a : plan.buffers) {
    INFO(a.layer << " " << a.what);
    top = std::max(top, a.offset + a.bytes);
    sum += a.bytes;
    CHECK(!a.layer.empty());
    CHECK(a.bytes > 0);
    CHECK(a.from <= a.to);
    CHECK(a.to < plan.times.size());
    for (const ls::ArenaRange& b : plan.buffers) {
      if (&a == &b || a.from > b.to || b.from > a.to) continue;
      CHECK((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
    }
  }
  CHECK(top == plan.arena_bytes);
  CHECK(sum == plan.unshared_bytes);
  // Each output is where the kernels write it, and in use from the step that writes it on.
  for (std::size_t i = 0; i < constant.activations.size(); ++i) {
    const auto& a = constant.activations[i];
    const bool found =
        std::any_of(plan.buffers.begin(), plan.buffers.end(), [&](const ls::ArenaRange& b) {
          return b.what.starts_with("output") && b.offset == a.offset * examples &&
                 b.bytes >= a.bytes * examples && b.from <= i && i <= b.to;
        });
    CHECK(found);
  }
  CHECK(plan.flops.size() == plan.times.size());
  CHECK(std::accumulate(plan.flops.begin(), plan.flops.end(), 0.0) ==
        constant.step_flops(examples));
  CHECK(plan.averaged_state_bytes == constant.averaged_state_bytes);
  REQUIRE(plan.buckets.size() == constant.buckets.size());
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    CHECK(plan.buckets[b].bytes == constant.buckets[b].bytes);
    const std::string& when = plan.times.at(plan.buckets[b].time);
    CHECK(when.starts_with(constant.buckets[b].layer));
    CHECK(when.ends_with(" backward"));
  }
}

}  // namespace

TEST_CASE("the arena of a step lists each buffer with its name, its place and its life") {
  const ls::MemoryPlan plan = ls::memory_plan<Small, Float>(10);
  CHECK(plan.device == "reference");
  CHECK(plan.times == Strings{"conv2d forward", "re_lu forward", "dense forward", "loss",
                              "dense backward", "re_lu backward", "conv2d backward"});
  // 4 x 4 x 4 floats are 256 bytes, 5 floats 20, which become one line of 64.
  const std::string both = "conv2d, re_lu";  // ReLU works in place
  CHECK(lives(find(plan, both, "output"), 0, 5, 2560));
  CHECK(lives(find(plan, "dense", "output"), 2, 3, 640));
  CHECK(lives(find(plan, "dense", "gradient"), 3, 4, 640));
  CHECK(lives(find(plan, both, "gradient"), 4, 6, 2560));
  CHECK(plan.buffers.size() == 4);
  // Conv2D multiplies and adds 9 x 4 numbers in each of 4 x 4 places, and has no gradient of the
  // batch; Dense 64 x 5 numbers.
  CHECK(plan.flops == std::vector<double>{11520, 0, 6400, 0, 12800, 0, 11520});
  REQUIRE(plan.buckets.size() == 1);
  CHECK(plan.buckets[0].bytes == 4 * (40 + 325));
  CHECK(plan.buckets[0].time == 6);
}

TEST_CASE("buffers that are in use at one time do not overlap, and end where the arena ends") {
  struct ResNet20 : resnet::ResNet<3> {};
  check_plan<Small, Float>(1);
  check_plan<Small, Float>(7);
  check_plan<Branches, Float>(3);
  check_plan<Branches, DenseAdd>(3);
  check_plan<Again, Float>(5);
  check_plan<ResNet20, Float>(128);
  check_plan<Twice, Float>(3);
}

TEST_CASE("a second gradient, data of a step, and what is recomputed have their own names") {
  const ls::MemoryPlan branches = ls::memory_plan<Branches, Float>(3);
  CHECK(find(branches, "tanh", "second gradient") != nullptr);
  CHECK(find(branches, "batch_normalization", "saved once per step") != nullptr);
  const ls::MemoryPlan again = ls::memory_plan<Again, Float>(5);
  CHECK(find(again, "dense_1", "output") != nullptr);
  CHECK(find(again, "dense_1", "output, recomputed") != nullptr);
  CHECK(std::find(again.times.begin(), again.times.end(), "tanh recompute") != again.times.end());
}

TEST_CASE("gradients of a further call have memory of their own") {
  const ls::MemoryPlan plan = ls::memory_plan<Twice, Float>(2);
  CHECK(
      lives(find(plan, "shared layers", "second gradient of weights"), 5, 8, 3776));  // 930 floats
}

TEST_CASE("the arena of the plan is the working memory of the model") {
  ls::Model model{Branches{}, ls::OneDevice<Float>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  model.train_on_batch(std::vector<float>(6 * 300), std::vector<std::int32_t>(6));
  const ls::MemoryPlan plan = ls::memory_plan<Branches, Float>(6);
  CHECK(plan.arena_bytes == model.memory().working);
  CHECK(plan.gradient_bytes == model.memory().gradients);
  CHECK(plan.state_bytes == model.memory().state);
}

TEST_CASE("a model without a step has no buffer") {
  struct None : ls::Sequential<ls::Input<3>, ls::Flatten> {};
  const ls::MemoryPlan plan = ls::memory_plan<None, Float>(4);
  CHECK(plan.buffers.empty());
  CHECK(plan.times == Strings{"loss"});
  CHECK(to_json(plan).find("\"buffers\": [\n  \n]") != std::string::npos);
}

TEST_CASE("a memory plan becomes JSON") {
  using namespace ls::detail;
  const ls::MemoryPlan plan = ls::memory_plan<Branches, Float>(3);
  const std::string json = to_json(plan);
  const JsonDocument document(json, "plan", {.bytes = json.size()});
  const JsonValue root = document.root();
  CHECK(json_natural(root, "examples") == 3);
  CHECK(json_natural(root, "arena_bytes") == plan.arena_bytes);
  CHECK(json_natural(root, "weight_bytes") == plan.weight_bytes);
  std::size_t i = 0;
  for (const JsonValue& b : json_list(root, "buffers")) {
    const ls::ArenaRange& expected = plan.buffers.at(i++);
    CHECK(json_text(b, "layer") == expected.layer);
    CHECK(json_text(b, "what") == expected.what);
    CHECK(json_natural(b, "from") == expected.from);
    CHECK(json_natural(b, "to") == expected.to);
    CHECK(json_natural(b, "offset") == expected.offset);
    CHECK(json_natural(b, "bytes") == expected.bytes);
  }
  CHECK(i == plan.buffers.size());
  i = 0;
  for (const JsonValue& t : json_list(root, "times")) CHECK(t.text() == plan.times.at(i++));
  CHECK(i == plan.times.size());
  CHECK(json_natural(root, "averaged_state_bytes") == 2 * 30 * sizeof(double));
  i = 0;
  for (const JsonValue& f : json_list(root, "flops")) CHECK(f.number() == plan.flops.at(i++));
  CHECK(i == plan.flops.size());
  i = 0;
  for (const JsonValue& b : json_list(root, "buckets")) {
    CHECK(json_natural(b, "bytes") == plan.buckets.at(i).bytes);
    CHECK(json_natural(b, "time") == plan.buckets.at(i++).time);
  }
  CHECK(i == plan.buckets.size());
}
