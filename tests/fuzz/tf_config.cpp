// Hostile text as TF_CONFIG and as a cluster file: it is refused by a ClusterError whose message is
// one short line of printable text, or it is a cluster that reads back as itself. Lines NAME=VALUE
// are also an environment, of lockstep, Slurm, MPI or torchrun.
#include "lockstep/cluster/description/tf_config.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/promises.hpp"
#include "lockstep/cluster/resolve.hpp"

using fuzz::refuses_or_returns;
using fuzz::require;

namespace {

void check(const lockstep::ResolvedCluster& job) {
  require(job.world_size >= 1 && (!job.rank || *job.rank < job.world_size));
  for (const auto& note : job.notes) require(cluster_test::fit_to_print(note));
}

cluster_test::Variables variables_in(std::string_view text) {
  cluster_test::Variables variables;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
    if (const auto sign = line.find('='); sign != line.npos)
      variables[std::string(line.substr(0, sign))] = line.substr(sign + 1);
  }
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuses_or_returns([&] {
    const auto cluster = lockstep::parse_cluster(text, "FILE");
    require(lockstep::parse_cluster(cluster.json(), "again") == cluster);
  });
  refuses_or_returns([&] {
    const auto job =
        lockstep::resolve_cluster(cluster_test::environment({{"TF_CONFIG", std::string(text)}}));
    check(job);
    require(job.chief == job.cluster.value().address(0));
  });
  if (auto variables = variables_in(text); !variables.empty())
    refuses_or_returns(
        [&] { check(lockstep::resolve_cluster(cluster_test::environment(std::move(variables)))); });
  refuses_or_returns([&] { lockstep::parse_task(text, "--task"); });
  return 0;
}
