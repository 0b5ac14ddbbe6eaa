#include "lockstep/strategies/parameter_server.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>
#include <string>

#include "lockstep/reference.hpp"
#include "lockstep/training/step/served.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using Servers = ls::ParameterServer<ls::Reference<double>>;

namespace {

/// A strategy whose environment has one or two variables.
Servers with(const std::string& name, const std::string& value, const std::string& other = "",
             const std::string& its = "") {
  Servers servers;
  servers.environment = [=](const std::string& asked) -> std::optional<std::string> {
    if (asked == name) return value;
    if (asked == other) return its;
    return std::nullopt;
  };
  return servers;
}

const std::string cluster = R"({"cluster":{"worker":["127.0.0.1:1"],"ps":["127.0.0.1:2"]},)";

}  // namespace

static_assert(ls::Strategy<Servers> && ls::UpdatePolicy<ls::Served, ls::Reference<double>>);

TEST_CASE("a job without parameter servers is refused before anybody is waited for") {
  CHECK_THROWS_WITH(
      with("TF_CONFIG", R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0}})")
          .open(),
      ContainsSubstring("TF_CONFIG: cluster has no ps; list at least one parameter server"));
  CHECK_THROWS_WITH(
      with("LOCKSTEP_WORLD_SIZE", "1", "LOCKSTEP_RANK", "0").open(),
      ContainsSubstring("LOCKSTEP_WORLD_SIZE does not describe parameter servers; set "
                        "TF_CONFIG with the job ps, or start the program by lockstep-run"));
  Servers single = with("HOME", "/");
  single.cluster.allow_single = true;
  CHECK_THROWS_WITH(single.open(), ContainsSubstring("does not describe parameter servers"));
  CHECK_THROWS_AS(single.open(), ls::ClusterError);
}

TEST_CASE("a job with parameter servers is not elastic, and numbers all its tasks") {
  CHECK_THROWS_WITH(
      with("LOCKSTEP_MIN_WORKERS", "1", "TF_CONFIG",
           cluster + R"("task":{"type":"worker","index":0}})")
          .open(),
      ContainsSubstring("LOCKSTEP_MIN_WORKERS is set, but a job with parameter servers ends at a "
                        "loss; unset it"));
  CHECK_THROWS_WITH(with("TF_CONFIG", cluster + R"("task":{"type":"ps","index":"auto"}})").open(),
                    ContainsSubstring("task.index is auto: a job with parameter servers needs the "
                                      "index of each task"));
}
