#include "lockstep/training/callbacks/csv_logger.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "callbacks_recorded.hpp"
#include "fake_loop.hpp"
#include "support/log_lines.hpp"

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
  const testing::LogLines lines;
  const auto all = recorded::csv();
  REQUIRE(all.size() == 20);
  int refused = 0;
  for (const recorded::Csv& r : all) {
    CAPTURE(r.name, r.separator, r.append, r.before);
    std::ofstream(place.path, std::ios::binary) << r.before;
    std::vector<ls::Logs> epochs;
    FakeLoop loop;  // Keras adds columns val_... without validation data, too
    loop.numbers.metrics.clear();
    for (const auto& epoch : r.epochs) {
      ls::Logs& logs = epochs.emplace_back();
      for (const auto& [name, value] : epoch) logs.set(name, value);
    }
    for (const auto& [name, value] : r.epochs[0])
      if (!name.starts_with("val_")) loop.numbers.metrics.push_back(name);
    const auto run = [&] {
      loop.run(ls::CSVLogger{place.path.string(), r.separator.c_str(), r.append}, epochs);
    };
    if (r.append && !r.before.empty()) {  // Keras writes under a header of other columns
      CHECK_THROWS_WITH(run(), ContainsSubstring("cannot be continued"));
      CHECK(content(place.path) == r.before);
      ++refused;
      continue;
    }
    run();
    CHECK(content(place.path) == r.file);
  }
  CHECK(refused == 5);
}

TEST_CASE("CSVLogger has columns val_... only with validation data, in each epoch or not") {
  const Place place;
  FakeLoop loop;
  loop.numbers = {.metrics = {"loss", "accuracy"}};
  const ls::CSVLogger csv{place.path.string()};
  loop.run(csv, {logs_of({{"loss", 1}, {"accuracy", 0.5}, {"learning_rate", 0.25}})});
  CHECK(content(place.path) == "epoch,accuracy,learning_rate,loss\r\n0,0.5,0.25,1.0\r\n");
  // Keras: also val_learning_rate, unless the first epoch has validation.
  loop.numbers.has_validation = true;
  const auto without = logs_of({{"loss", 1}, {"accuracy", 0.5}, {"learning_rate", 0.25}});
  auto with = without;
  with.set("val_loss", 2);
  with.set("val_accuracy", 0.75);
  const std::string header = "epoch,accuracy,learning_rate,loss,val_accuracy,val_loss\r\n";
  loop.run(csv, {without, with});
  CHECK(content(place.path) == header + "0,0.5,0.25,1.0,NA,NA\r\n1,0.5,0.25,1.0,0.75,2.0\r\n");
  loop.run(csv, {with, without});
  CHECK(content(place.path) == header + "0,0.5,0.25,1.0,0.75,2.0\r\n1,0.5,0.25,1.0,NA,NA\r\n");
}

TEST_CASE("CSVLogger continues a file in any state under its own header") {
  const Place place;
  const std::string head = "epoch,accuracy,loss,more\r\n";
  struct {
    std::string before, kept;  // then "epoch" 0 with loss 2 and accuracy 0.5
    bool warns = false;
  } const cases[]{
      {head, head},                                                           // a run that crashed
      {head + "0,1.0,2.0,3.0\r\n", head + "0,1.0,2.0,3.0\r\n"},               //
      {head + "0,1.0,2.0,3.0", head + "0,1.0,2.0,3.0\r\n"},                   // no line end
      {head + "0,1.0,2.0,3.0\r", head + "0,1.0,2.0,3.0\r\n"},                 // half of it
      {head + "0,1.0,2.0,3.0\r\n1,1.0,2", head + "0,1.0,2.0,3.0\r\n", true},  // torn
      {head + "0,1.0,2", head, true},
      {head + "0", head, true},
      {"epoch,\"accuracy\",loss,\"mo,\n\"\"re\"\r\n",
       "epoch,\"accuracy\",loss,\"mo,\n\"\"re\"\r\n"},
      {"\xef\xbb\xbf" + head, "\xef\xbb\xbf" + head},  // saved by a spreadsheet
      {head + "\r\n\r\n", head + "\r\n\r\n"},
  };
  FakeLoop loop;
  loop.numbers = {.metrics = {"accuracy", "loss"}};
  const std::vector<ls::Logs> epoch{logs_of({{"loss", 2}, {"accuracy", 0.5}})};
  const ls::CSVLogger csv{.filename = place.path.string(), .append = true};
  for (const auto& c : cases) {
    CAPTURE(c.before);
    const testing::LogLines lines;
    std::ofstream(place.path, std::ios::binary) << c.before;
    loop.run(csv, epoch);
    CHECK(content(place.path) == c.kept + "0,0.5,2.0,NA\r\n");
    CHECK(lines.lines.size() == (c.warns ? 1 : 0));
  }
  // The line ends of the file.
  std::ofstream(place.path, std::ios::binary) << "epoch,loss,accuracy\n0,1.0,2.0";
  loop.run(csv, epoch);
  CHECK(content(place.path) == "epoch,loss,accuracy\n0,1.0,2.0\n0,2.0,0.5\n");
  // Without a header that is complete: as a new file.
  for (const char* const none : {"", "\n", " \r\n", "e", "epoch", "epoch,accur", "epoch,loss",
                                 "epoch,accuracy,loss", "epoch,\"accur"}) {
    CAPTURE(none);
    std::ofstream(place.path, std::ios::binary) << none;
    loop.run(csv, epoch);
    CHECK(content(place.path) == "epoch,accuracy,loss\r\n0,0.5,2.0\r\n");
  }
}

TEST_CASE("CSVLogger refuses to continue a file of other columns before the first step") {
  const Place place;
  FakeLoop loop;
  loop.numbers = {.metrics = {"loss", "huber_loss"}};
  const auto message = [&](const std::string& before, const std::string& separator = ",") {
    std::ofstream(place.path, std::ios::binary) << before;
    const std::shared_ptr<ls::Callback> callback =
        ls::CSVLogger{place.path.string(), separator, true};
    callback->set_control(&loop);
    std::string text;
    try {
      callback->on_train_begin({});
    } catch (const ls::UsageError& e) {
      text = e.what();
    }
    CHECK(content(place.path) == before);
    return text;
  };
  CHECK_THAT(message("epoch,loss,mean_absolute_error\r\n0,1.0,2.0\r\n"),
             ContainsSubstring("has the columns epoch, loss, mean_absolute_error and none for "
                               "huber_loss, which fit logs; choose another file"));
  CHECK_THAT(message("epoch;huber_loss;loss\r\n"),
             ContainsSubstring("instead of a header that begins with 'epoch,'"));
  CHECK_THAT(message("0,1.0,2.0\r\n"), ContainsSubstring("instead of a header"));
  CHECK_THAT(message("precious line 1\n"), ContainsSubstring("precious line 1"));
  CHECK_THAT(message("precious"), ContainsSubstring("precious"));
  CHECK(message("epoch;huber_loss;loss\r\n", ";").empty());
  // A worker that is not the chief may have another file of this name.
  loop.numbers.rank = 1;
  CHECK(message("precious line 1\n").empty());
}

TEST_CASE("CSVLogger warns once of values that have no column, and keeps its columns") {
  const Place place;
  const testing::LogLines lines;
  const auto first = logs_of({{"loss", 1}}), later = logs_of({{"loss", 2}, {"test_mae", 3}});
  FakeLoop loop;
  loop.numbers.has_validation = false;
  loop.run(ls::CSVLogger{place.path.string()}, {first, later, first, later});
  CHECK(content(place.path) == "epoch,loss\r\n0,1.0\r\n1,2.0\r\n2,1.0\r\n3,2.0\r\n");
  REQUIRE(lines.lines.size() == 1);
  CHECK_THAT(lines.lines[0], ContainsSubstring("has no column for test_mae, logged in epoch 2"));
}

TEST_CASE("CSVLogger continues with the columns of its state where the file has no header") {
  const Place place;
  const testing::LogLines lines;
  FakeLoop loop;
  loop.numbers = {.metrics = {"loss"}};
  const auto make = [&] {
    return std::shared_ptr<ls::Callback>(ls::CSVLogger{place.path.string()});
  };
  const auto rate = logs_of({{"loss", 1}, {"learning_rate", 0.5}}), plain = logs_of({{"loss", 1}});
  loop.run_interrupted(make, {rate});
  const auto before = make();
  before->set_control(&loop);
  before->on_train_begin({});
  before->on_epoch_end(0, rate);
  ls::CallbackState state;
  before->save_state(state);
  for (const bool is_lost : {false, true}) {
    CAPTURE(is_lost);
    if (is_lost) std::filesystem::remove(place.path);
    loop.numbers.resumed = true;
    const auto resumed = make();
    resumed->set_control(&loop);
    resumed->on_train_begin({});
    resumed->load_state(state);
    resumed->on_epoch_end(1, plain);
    CHECK(content(place.path) == std::string("epoch,learning_rate,loss\r\n") +
                                     (is_lost ? "" : "0,0.5,1.0\r\n") + "1,NA,1.0\r\n");
  }
  // A new chief, which was not the one before, and has the columns from its first epoch.
  loop.numbers = {.metrics = {"loss"}, .rank = 1};
  const auto next = make();
  next->set_control(&loop);
  next->on_train_begin({});
  next->on_epoch_end(0, rate);
  std::ofstream(place.path, std::ios::binary) << "epoch,learning_rate,loss\r\n0,0.5,1.0\r\n1,0.";
  loop.numbers.rank = 0;
  next->on_workers_change({.epoch = 1, .is_chief = true});
  next->on_epoch_end(1, plain);
  CHECK(content(place.path) == "epoch,learning_rate,loss\r\n0,0.5,1.0\r\n1,NA,1.0\r\n");
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

TEST_CASE("CSVLogger goes back to a state within its run, as in an elastic job") {
  const Place place;
  FakeLoop loop;
  loop.numbers.has_validation = false;
  const std::shared_ptr<ls::Callback> callback = ls::CSVLogger{place.path.string()};
  callback->set_control(&loop);
  callback->on_train_begin({});
  ls::CallbackState begin, first;
  callback->save_state(begin);
  callback->on_epoch_end(0, logs_of({{"loss", 1}}));
  callback->save_state(first);
  callback->on_epoch_end(1, logs_of({{"loss", 2}}));
  callback->load_state(first);
  CHECK(content(place.path) == "epoch,loss\r\n0,1.0\r\n");
  callback->on_epoch_end(1, logs_of({{"loss", 3}}));
  CHECK(content(place.path) == "epoch,loss\r\n0,1.0\r\n1,3.0\r\n");
  callback->load_state(begin);
  CHECK(content(place.path).empty());
  callback->on_epoch_end(0, logs_of({{"loss", 4}}));
  CHECK(content(place.path) == "epoch,loss\r\n0,4.0\r\n");
}

TEST_CASE("a link does not make CSVLogger overwrite a file that is not a log") {
  const Place place;
  const std::filesystem::path link = place.path.string() + ".link";
  std::filesystem::remove(link);
  std::filesystem::create_symlink(place.path, link);
  std::ofstream(place.path) << "precious line 1\n";
  const auto run = [&] { FakeLoop().run(ls::CSVLogger{link.string()}, {logs_of({{"loss", 1}})}); };
  CHECK_THROWS_WITH(run(), ContainsSubstring("a symbolic link to a file that is not a log"));
  CHECK(content(place.path) == "precious line 1\n");
  std::ofstream(place.path) << "epoch,loss\r\n0,2.0\r\n";
  run();
  CHECK(content(place.path) == "epoch,loss,val_loss\r\n0,1.0,NA\r\n");
  CHECK(std::filesystem::is_symlink(link));
  std::filesystem::remove(link);
}

TEST_CASE("CSVLogger refuses a name that stands for a file that the process has open") {
  const Place place;
  std::FILE* const file = std::fopen(place.path.c_str(), "w");
  REQUIRE(file != nullptr);
  const std::string name = "/dev/fd/" + std::to_string(::fileno(file));
  for (const bool appends : {false, true})
    CHECK_THROWS_WITH(FakeLoop().run(ls::CSVLogger{.filename = name, .append = appends},
                                     {logs_of({{"loss", 1}})}),
                      ContainsSubstring("a file that this process has open"));
  CHECK(content(place.path).empty());
  std::fclose(file);
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
