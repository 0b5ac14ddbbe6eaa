// Hostile text as TF_CONFIG and as a cluster file: it is refused by a ClusterError whose message is
// one short line of printable ASCII, or it is a cluster that reads back as itself.
#include "lockstep/cluster/tf_config.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/promises.hpp"
#include "lockstep/cluster/resolve.hpp"

using fuzz::refuses_or_returns;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuses_or_returns([&] {
    const auto cluster = lockstep::parse_cluster(text, "FILE");
    require(lockstep::parse_cluster(cluster.json(), "again") == cluster);
  });
  refuses_or_returns([&] {
    const auto job =
        lockstep::resolve_cluster(cluster_test::environment({{"TF_CONFIG", std::string(text)}}));
    require(job.world_size >= 1 && (!job.rank || *job.rank < job.world_size));
    require(job.chief == job.cluster.value().address(0));
    for (const auto& note : job.notes) require(cluster_test::fit_to_print(note));
  });
  refuses_or_returns([&] { lockstep::parse_task(text, "--task"); });
  return 0;
}
