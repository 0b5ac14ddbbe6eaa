#include "lockstep/strategies/job/worker_job.hpp"

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <optional>
#include <string>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/core/error.hpp"

namespace ls = lockstep;

TEST_CASE("a chief's port in use ends only one generation of an elastic job") {
  asio::io_context io;
  asio::ip::tcp::acceptor other(io, {asio::ip::make_address("127.0.0.1"), 0});
  ls::ResolvedCluster generation;
  generation.source = "test";
  generation.world_size = 2;
  generation.rank = 0;
  generation.chief = ls::HostPort{"127.0.0.1", other.local_endpoint().port()};
  generation.rendezvous_timeout = std::chrono::seconds(5);
  const ls::Secret secret{};
  const ls::ClusterArguments none{};
  const ls::Environment environment = [](const std::string&) -> std::optional<std::string> {
    return std::nullopt;
  };
  const auto open = [&](bool first) {
    const ls::detail::WorkerJob job({.cluster = none,
                                     .environment = environment,
                                     .generation = &generation,
                                     .secret = &secret,
                                     .logs_members = first});
  };
  for (const bool first : {true, false}) {
    try {
      open(first);
      FAIL("the chief listens at a port in use");
    } catch (const ls::PeerLost& e) {
      CHECK(e.rank() == 0);
      CHECK(e.how().find("is in use by another process") != std::string::npos);
    }
  }
}
