// The encoding of a job's state: all values come back with the same bits, and what does not fit is
// refused by name.
#include "lockstep/training/checkpoint/encoded_state.hpp"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/folder.hpp"
#include "support/state_layout.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using ls::detail::CheckpointDirectory;
using ls::detail::JobState;

namespace {

const std::vector<ls::ParameterInfo> parameters{{"dense/kernel", ls::shape(2, 3), 0, true},
                                                {"dense/bias", ls::shape(3), 6, true},
                                                {"norm/mean", ls::shape(2), 0, false}};

std::vector<std::byte> values(std::size_t count, float first) {
  std::vector<std::byte> bytes(count * sizeof(float));
  for (std::size_t i = 0; i < count; ++i) {
    const float value = first + static_cast<float>(i) / 7;
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
  return bytes;
}

JobState state() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  JobState s;
  s.weights = values(9, 1);
  s.state = values(2, -1);
  s.slot_values = {{"momentum", values(9, 0.25f)}, {"moving_average", values(9, -3)}};
  s.steps = 12'345'678'901;
  s.loss_scale = {0x1p-126, 17, 3};
  s.seed = 0xFFFF'FFFF'FFFF'FFFF;
  s.rate = 0.1 + 0.2;
  s.passes = 4;
  s.totals = {0.1, std::numeric_limits<double>::denorm_min()};
  s.position = {.epoch = 3,
                .steps = 7,
                .pass = 5,
                .examples = 99,
                .first_update = 2,
                .has_ended = true,
                .logs = {{1.0 / 3, -0.0}, infinity, 64, {infinity, 0.5}, {1e-300, 0.25}}};
  ls::CallbackState callback;
  callback.set("wait", 3);
  callback.set("list", std::vector<double>{1e308, -infinity, 0.1});
  callback.set("weights", values(3, 9));
  callback.set("history", std::vector<double>(1000, 1.0 / 3));
  s.callbacks = {{"EarlyStopping \"a/b\"", callback}, {"Other", {}}};
  s.signature = {{"layers", "dense \\ \"x\""}, {"seed", "1"}, {"device", "cpu"}};
  s.replicas = 4;
  s.workers = 2;
  return s;
}

/// Writes `saved` and decodes it for `job`.
JobState through_disk(const JobState& saved, const JobState& job, std::string* notes = nullptr,
                      const std::vector<ls::ParameterInfo>& of = parameters) {
  const testing::Folder folder;
  CheckpointDirectory directory(folder / "run");
  directory.open_for_writing();
  {
    const ls::detail::EncodedState encoded(saved, parameters);
    directory.write(saved.steps, encoded.files(), encoded.description());
  }
  std::string ignored;
  return decode_state(directory.read(saved.steps), of, testing::layout_of(job),
                      notes != nullptr ? *notes : ignored);
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace

TEST_CASE("a state comes back with the same bits") {
  const JobState a = state(), b = through_disk(a, a);
  CHECK(b.weights == a.weights);
  CHECK(b.state == a.state);
  CHECK(b.slot_values == a.slot_values);
  CHECK(b.steps == a.steps);
  CHECK(b.loss_scale.scale == a.loss_scale.scale);
  CHECK(b.loss_scale.finite_steps == a.loss_scale.finite_steps);
  CHECK(b.loss_scale.skipped == a.loss_scale.skipped);
  CHECK(b.seed == a.seed);
  CHECK(b.rate == a.rate);
  CHECK(b.passes == a.passes);
  CHECK(same_bits(b.totals, a.totals));
  REQUIRE(b.position);
  CHECK(b.position->epoch == 3);
  CHECK(b.position->steps == 7);
  CHECK(b.position->pass == 5);
  CHECK(b.position->examples == 99);
  CHECK(b.position->first_update == 2);
  CHECK(b.position->has_ended);
  CHECK(same_bits(b.position->logs.sums, a.position->logs.sums));
  CHECK(b.position->logs.loss == a.position->logs.loss);
  CHECK(b.position->logs.count == 64);
  CHECK(same_bits(b.position->logs.values, a.position->logs.values));
  CHECK(same_bits(b.position->logs.steps, a.position->logs.steps));
  REQUIRE(b.callbacks.size() == 2);
  CHECK(b.callbacks[0].first == a.callbacks[0].first);
  CHECK(b.callbacks[0].second.number("wait") == 3);
  CHECK(same_bits(b.callbacks[0].second.numbers("list"), a.callbacks[0].second.numbers("list")));
  CHECK(b.callbacks[0].second.bytes("weights") == a.callbacks[0].second.bytes("weights"));
  CHECK(b.callbacks[0].second.numbers("history") == std::vector<double>(1000, 1.0 / 3));
  CHECK(b.callbacks[1].second.all_numbers().empty());
  CHECK(b.signature == a.signature);
  CHECK(b.replicas == 4);
  CHECK(b.workers == 2);
}

TEST_CASE("NaN comes back as NaN, and no rate and no position as none") {
  JobState a = state();
  a.rate.reset();
  a.position.reset();
  a.totals = {std::nan(""), 1};
  const JobState b = through_disk(a, a);
  CHECK_FALSE(b.rate);
  CHECK_FALSE(b.position);
  CHECK(std::isnan(b.totals[0]));
}

TEST_CASE("a field that differs is refused, unless it changes rounding only") {
  JobState job = state();
  job.signature[0].second = "dense y";
  CHECK_THROWS_WITH(through_disk(state(), job),
                    ContainsSubstring("layers was dense \\ \"x\" and is dense y now"));
  job = state();
  job.signature[2].second = "cuda";
  std::string notes;
  through_disk(state(), job, &notes);
  CHECK(notes == "device was cpu and is cuda");
  JobState mixed = state();
  mixed.signature[2].second = "cpu mixed_bfloat16";
  CHECK_THROWS_WITH(through_disk(state(), mixed), ContainsSubstring("device was cpu and is"));
  job.signature.emplace_back("a new field", "1");  // not in the checkpoint
  through_disk(state(), job, &notes);
}

TEST_CASE("tensors that are missing or have another shape or type are refused by name") {
  const auto refused = [&](const JobState& job, const std::vector<ls::ParameterInfo>& of,
                           const char* what) {
    CHECK_THROWS_WITH(through_disk(state(), job, nullptr, of), ContainsSubstring(what));
    CHECK_THROWS_AS(through_disk(state(), job, nullptr, of), ls::CheckpointError);
  };
  auto more = parameters;
  more.push_back({"dense_1/bias", ls::shape(1), 9, true});
  refused(state(), more, "dense_1/bias");
  auto turned = parameters;
  turned[0].shape = ls::shape(3, 2);
  refused(state(), turned, "dense/kernel");
  JobState job = state();
  job.slot_values[0].first = "velocity";
  refused(job, parameters, "velocity/dense/kernel");
  job = state();
  job.type = ls::DType::float64;
  refused(job, parameters, "F64");
  job = state();
  job.totals.push_back(1);
  refused(job, parameters, "metrics");
}

TEST_CASE("a newer format is refused with both versions") {
  const testing::Folder folder;
  CheckpointDirectory directory(folder / "run");
  directory.open_for_writing();
  const JobState a = state();
  const ls::detail::EncodedState encoded(a, parameters);
  std::string text = encoded.description();
  text.replace(text.find("\"format\": 1"), 11, "\"format\": 2");
  directory.write(1, encoded.files(), text);
  std::string notes;
  CHECK_THROWS_WITH(decode_state(directory.read(1), parameters, testing::layout_of(a), notes),
                    ContainsSubstring("has format 2") && ContainsSubstring("reads format 1"));
}

TEST_CASE("manifests with members of another kind are refused") {
  const JobState a = state();
  const ls::detail::EncodedState encoded(a, parameters);
  const auto refused = [&](const std::string& from, const std::string& to) {
    const testing::Folder folder;
    CheckpointDirectory directory(folder / "run");
    directory.open_for_writing();
    std::string text = encoded.description();
    REQUIRE(text.find(from) != text.npos);
    text.replace(text.find(from), from.size(), to);
    directory.write(1, encoded.files(), text);
    std::string notes;
    CHECK_THROWS_AS(decode_state(directory.read(1), parameters, testing::layout_of(a), notes),
                    ls::CheckpointError);
  };
  refused("\"steps\": 12345678901", "\"steps\": -1");
  refused("\"steps\": 12345678901", "\"steps\": \"x\"");
  refused("\"steps\": 12345678901", "\"stepz\": 1");
  refused("\"passes\": 4", "\"passes\": [4]");
  refused("\"epoch\": 3", "\"epoch\": 2000000000");
  refused("\"scale\": ", "\"scale\": \"nan\", \"other\": ");
  refused("\"skipped\": 3", "\"skipped\": 99999999999999");
  refused("\"has_ended\": true", "\"has_ended\": 1");
  refused("[\"seed\", \"1\"]", "[\"seed\"]");
  refused("\"wait\": [3]", "\"wait\": 3");
}
