// Hostile text as Slurm's lists: it is refused by a ClusterError whose message is one short line of
// printable text, or every entry can be asked for and is no longer than a host name.
#include "lockstep/cluster/description/slurm_lists.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/promises.hpp"

using fuzz::refuses_or_returns;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuses_or_returns([&] {
    const lockstep::detail::HostList hosts(text, "HOSTS");
    require(hosts.size() >= 1 && hosts.size() <= 1'000'000);
    for (std::size_t i = 0; i < hosts.size(); i += 1 + hosts.size() / 64)
      require(!hosts[i].empty() && hosts[i].size() <= 253);
    require(hosts[hosts.size() - 1].size() <= 253);
  });
  refuses_or_returns([&] {
    const lockstep::detail::TasksPerNode tasks(text, "TASKS");
    require(tasks.nodes() >= 1 && tasks.nodes() <= 1'000'000);
    std::size_t sum = 0;
    for (std::size_t n = 0; n < tasks.nodes() && tasks.nodes() < 4'096; ++n) sum += tasks[n];
    require(tasks.nodes() >= 4'096 || sum == tasks.tasks());
  });
  return 0;
}
