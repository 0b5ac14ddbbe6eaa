#include "lockstep/tensorboard/event_writer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "support/event_reader.hpp"
#include "support/temporary_folder.hpp"

namespace ls = lockstep;

TEST_CASE("scalars of one step are one event") {
  const TemporaryFolder place;
  {
    ls::EventWriter writer(place / "run");
    writer.add_scalar("a", 1.5, 3);
    const std::vector<ls::Scalar> two{{"b", 0.1}, {"c", -1e30}};
    writer.add_scalars(two, 1LL << 40);
  }
  const auto events = testing::events_in(place / "run");
  REQUIRE(events.size() == 3);
  CHECK(events[1].step == 3);
  CHECK(events[1].values.at(0).simple_value == 1.5f);
  CHECK(events[2].step == 1LL << 40);
  REQUIRE(events[2].values.size() == 2);
  CHECK(events[2].values[0].simple_value == 0.1f);
  CHECK(events[2].values[1].simple_value == -1e30f);
}

TEST_CASE("events have the time at which they were added") {
  const TemporaryFolder place;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const double before = now();
  {
    ls::EventWriter writer(place / "run");
    writer.add_scalar("a", 1, 0);
  }
  const double after = now();
  for (const auto& event : testing::events_in(place / "run")) {
    CHECK(event.wall_time >= before);
    CHECK(event.wall_time <= after);
  }
}

TEST_CASE("scalars may be tensors") {
  const TemporaryFolder place;
  {
    ls::EventWriter writer(place / "run", {.tensor_scalars = true});
    writer.add_scalar("a", 1.5, 3);
  }
  const auto value = testing::tensors_in(place / "run").at("a").at(3);
  CHECK(value.plugin == "scalars");
  CHECK(value.floats == std::vector<float>{1.5f});
}

TEST_CASE("a writer adds histograms, images, texts, graphs and sessions") {
  const TemporaryFolder place;
  {
    ls::EventWriter writer(place / "run");
    writer.add_histogram("h", std::vector<float>{1, 1}, 1);
    writer.add_images("i", ls::shape(2, 1, 3), std::vector<std::uint8_t>(12), 2);
    writer.add_text("t", "hello", 3);
    writer.add_graph({{"x", "Input", {}, ls::shape(2), {}}});
    const std::vector<ls::HParam> hparams{{"units", 64}};
    writer.begin_session(hparams);
    writer.end_session(true);
  }
  const auto tensors = testing::tensors_in(place / "run");
  CHECK(tensors.at("h").at(1).shape == std::vector<std::int64_t>{30, 3});
  CHECK(tensors.at("h").at(1).doubles().back() == 2);
  const auto images = tensors.at("i").at(2).strings;
  REQUIRE(images.size() == 4);
  CHECK(images[0] == "1");
  CHECK(images[1] == "2");
  CHECK(images[2].starts_with("\x89PNG"));
  CHECK(tensors.at("t").at(3).strings.at(0) == "hello");
  CHECK(tensors.contains("_hparams_/session_start_info"));
  CHECK(tensors.contains("_hparams_/session_end_info"));
  CHECK(testing::events_in(place / "run").at(4).graph.find("Input") != std::string::npos);
}

TEST_CASE("images that do not fit their shape are rejected, and the next value is not affected") {
  const TemporaryFolder place;
  ls::EventWriter writer(place / "run");
  const std::vector<std::uint8_t> pixels(12);
  CHECK_THROWS_AS(writer.add_images("i", ls::shape(5, 1, 1), pixels, 0), ls::UsageError);
  CHECK_THROWS_AS(writer.add_images("i", ls::shape(2, 6), pixels, 0), ls::UsageError);
  CHECK_THROWS_AS(writer.add_images("i", ls::shape(2, 6, 1), {}, 0), ls::UsageError);
  writer.add_scalar("a", 1, 0);
  writer.flush();
  const auto events = testing::events_in(place / "run");
  REQUIRE(events.size() == 2);
  CHECK(events[1].values.size() == 1);
}

TEST_CASE("a restart has its step, and no values") {
  const TemporaryFolder place;
  {
    ls::EventWriter(place / "run").add_restart(12);
  }
  const auto events = testing::events_in(place / "run");
  REQUIRE(events.size() == 2);
  CHECK(events[1].is_restart);
  CHECK(events[1].step == 12);
  CHECK(events[1].values.empty());
}

TEST_CASE("invalid options of a writer are rejected before a file is created") {
  const TemporaryFolder place;
  CHECK_THROWS_AS(ls::EventWriter(place / "run", {.flush_seconds = -1}), ls::UsageError);
  CHECK_THROWS_AS(ls::EventWriter(place / "run", {.max_queue = 0}), ls::UsageError);
  CHECK_FALSE(std::filesystem::exists(place / "run"));
}
