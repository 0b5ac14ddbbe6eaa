#include "lockstep/training/callbacks/csv_logger.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "callbacks_recorded.hpp"
#include "fake_loop.hpp"

namespace {

using namespace callbacks_test;
using Catch::Matchers::ContainsSubstring;

/// A path without a file, before and after the test.
struct Place {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lockstep_csv_" + std::to_string(::getpid()));
  Place() { std::filesystem::remove(path); }
  ~Place() { std::filesystem::remove(path); }
};

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("CSVLogger writes the file that Keras writes") {
  const Place place;
  const auto all = recorded::csv();
  REQUIRE(all.size() == 20);
  for (const recorded::Csv& r : all) {
    CAPTURE(r.name, r.separator, r.append, r.before);
    std::ofstream(place.path, std::ios::binary) << r.before;
    std::vector<ls::Logs> epochs;
    for (const auto& epoch : r.epochs) {
      ls::Logs& logs = epochs.emplace_back();
      for (const auto& [name, value] : epoch) logs.set(name, value);
    }
    FakeLoop().run(ls::CSVLogger{place.path.string(), r.separator.c_str(), r.append}, epochs);
    CHECK(content(place.path) == r.file);
  }
}

TEST_CASE("CSVLogger has written an epoch's line when the epoch ends") {
  const Place place;
  const std::shared_ptr<ls::Callback> callback = ls::CSVLogger{place.path.string()};
  FakeLoop loop;
  callback->set_control(&loop);
  callback->on_train_begin({});
  callback->on_epoch_end(0, logs_of({{"loss", 1}, {"val_loss", 2}}));
  CHECK(content(place.path) == "epoch,loss,val_loss\r\n0,1.0,2.0\r\n");
}

TEST_CASE("only the chief writes CSVLogger's file") {
  const Place place;
  FakeLoop loop;
  loop.numbers.rank = 1;
  loop.run(ls::CSVLogger{place.path.string()}, {logs_of({{"loss", 1}})});
  CHECK_FALSE(std::filesystem::exists(place.path));
}

TEST_CASE("CSVLogger names the file that cannot be written, and the cause") {
  const auto run = [](const std::string& path) {
    FakeLoop().run(ls::CSVLogger{path}, {logs_of({{"loss", 1}})});
  };
  CHECK_THROWS_WITH(run("/no/such/folder/log.csv"),
                    ContainsSubstring("/no/such/folder/log.csv") && ContainsSubstring("folder"));
  CHECK_THROWS_AS(run("/"), ls::FileError);
  if (::access("/dev/full", W_OK) == 0)
    CHECK_THROWS_WITH(run("/dev/full"), ContainsSubstring("No space"));
  for (const char* const separator : {"", ",,", "\n", "\""})
    CHECK_THROWS_AS(std::shared_ptr<ls::Callback>(ls::CSVLogger{"log.csv", separator}),
                    ls::UsageError);
}
