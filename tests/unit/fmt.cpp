#include "lockstep/fmt.hpp"

#include <fmt/std.h>  // also has a formatter for exceptions

#include <catch2/catch_test_macros.hpp>

namespace ls = lockstep;

TEST_CASE("a shape is formatted as in messages, with width and fill") {
  CHECK(fmt::format("{}", ls::shape(28, 28, 1)) == "(28, 28, 1)");
  CHECK(fmt::format("{:.>9}|{:7}|", ls::shape(2, 3), ls::shape(4)) == "...(2, 3)|(4)    |");
}

TEST_CASE("logs are formatted in order, with numbers that read back exactly") {
  ls::Logs logs;
  CHECK(fmt::format("{}", logs).empty());
  logs.set("loss", 0.25);
  logs.set("accuracy", 0.1);
  CHECK(fmt::format("{}", logs) == "loss: 0.25, accuracy: 0.1");
}

TEST_CASE("a history is formatted with the values of all epochs") {
  ls::History history;
  ls::Logs logs;
  logs.set("loss", 0.5);
  history.on_epoch_end(0, logs);
  logs.set("loss", 0.25);
  logs.set("val_loss", 1.5);
  history.on_epoch_end(1, logs);
  CHECK(fmt::format("{}", history) == "loss: [0.5, 0.25], val_loss: [1.5]");
}

TEST_CASE("errors, including user-defined ones, are formatted as their messages") {
  struct Own : ls::DataError {
    using DataError::DataError;
  };
  CHECK(fmt::format("{}", ls::Error("too late")) == "too late");
  CHECK(fmt::format("{:<12}|", ls::UsageError("bad {}", 1)) == "bad 1       |");
  CHECK(fmt::format("{}", Own("a.idx", "truncated")) == "a.idx: truncated");
}

TEST_CASE("a job is formatted as rank and address, and a cluster as JSON") {
  ls::ResolvedCluster job;
  job.world_size = 2;
  CHECK(fmt::format("{}", job) == "an automatic rank of 2");
  job.source = "TF_CONFIG";
  job.rank = 1;
  CHECK(fmt::format("{}", job) == "rank 1 of 2 by TF_CONFIG");
  job.cluster = ls::ClusterSpec().worker("10.0.0.1:12345").worker("10.0.0.2:12345");
  CHECK(fmt::format("{}", job) == "rank 1 (worker:1, 10.0.0.2:12345) of 2 by TF_CONFIG");
  CHECK(fmt::format("{}", *job.cluster) == job.cluster->json());
}
