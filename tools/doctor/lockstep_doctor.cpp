// lockstep-doctor: checks the hosts of a job and the network between them before any training. It is
// started as each worker would be: with TF_CONFIG, by lockstep-run, torchrun, mpirun or srun.
//
// Exit code, the same on all workers that have joined: 0 if the job can train, 1 if there are problems,
// 2 for an invalid command line or an invalid description of the job.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cluster/description/environment.hpp>
#include <lockstep/cluster/description/settings.hpp>
#include <lockstep/cluster/network/secret.hpp>
#include <lockstep/cluster/rendezvous/rendezvous.hpp>
#include <lockstep/cluster/resolve.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/core/version.hpp>

#include "doctor_diagnose.hpp"
#include "doctor_facts.hpp"
#include "doctor_host.hpp"
#include "doctor_job.hpp"
#include "doctor_table.hpp"

namespace lockstep_doctor {
namespace {

struct Arguments {
  bool has_servers = false;
  HostOptions host;
  Limits limits;
  std::optional<double> wait;  ///< seconds
};

/// \throws CLI::ParseError, also for --help and --version.
Arguments parse(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "lockstep-doctor: checks the hosts of a job and the network between them. Start it on all "
      "hosts as you would start the program: with TF_CONFIG, by lockstep-run, torchrun, mpirun or "
      "srun. The chief prints a table of hosts, one of connections, each problem with its remedy, "
      "and a verdict. Exit code: 0 ready to train, 1 problems, 2 wrong options or description.",
      "lockstep-doctor");
  app.add_option("--data", arguments.host.data,
                 "folder or file of the data set; its fingerprint must be equal on all hosts");
  CLI::Option* const save =
      app.add_option("--save", arguments.host.save,
                     "folder where the program will save; a small file is written there")
          ->capture_default_str();
  app.add_option("--program", arguments.host.program,
                 "file of the program; its fingerprint must be equal on all hosts");
  app.add_option(
         "--wait", arguments.wait,
         "seconds until all workers must have joined; default: LOCKSTEP_RENDEZVOUS_TIMEOUT, else 3")
      ->check(CLI::Range(0.5, 3600.0));
  app.add_flag("--ps", arguments.has_servers,
               "the job is one of ls::ParameterServer: its parameter servers take part");
  double clock = arguments.limits.clock, bandwidth = 8e-6 * arguments.limits.bandwidth,
         round_trip = 1e3 * arguments.limits.round_trip;
  std::int64_t memory = arguments.limits.memory >> 20, disk = arguments.limits.disk >> 20;
  app.add_option("--max-clock", clock, "problem: a clock differs by more than this, in seconds")
      ->capture_default_str();
  app.add_option("--min-bandwidth", bandwidth, "problem: a link between hosts is slower, in Mbit/s")
      ->capture_default_str();
  app.add_option("--max-round-trip", round_trip, "warning: a round trip takes longer, in ms")
      ->capture_default_str();
  app.add_option("--min-memory", memory, "problem: less memory is available, in MiB")
      ->capture_default_str();
  app.add_option("--min-disk", disk, "problem: less is free where files are saved, in MiB")
      ->capture_default_str();
  app.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION, "print the version and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    throw;
  } catch (const CLI::CallForVersion& version) {
    std::fputs(fmt::format("{}\n", version.what()).c_str(), stdout);
    throw;
  }
  arguments.host.writes = save->count() > 0;
  arguments.limits = {.clock = clock,
                      .bandwidth = bandwidth * 1e6 / 8,
                      .round_trip = round_trip * 1e-3,
                      .memory = memory << 20,
                      .disk = disk << 20};
  return arguments;
}

/// Collects warnings of the rendezvous, which its own threads log.
class Warnings {
 public:
  void add(std::string_view line) {
    const std::scoped_lock lock(mutex_);
    if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) lines_.emplace_back(line);
  }
  std::vector<std::string> lines() const {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::string secret_origin(const lockstep::Environment& environment,
                          const lockstep::Secret& secret) {
  if (secret.empty()) return "none";
  return lockstep::detail::variable(environment, "LOCKSTEP_SECRET_FILE") ? "file" : "variable";
}

/// Prints in one piece, so that lines of workers on one terminal do not mix.
void print(std::FILE* to, const std::string& text) {
  std::fputs(text.c_str(), to);
  std::fflush(to);
}

/// The findings of a worker that has not joined: why, what it saw meanwhile, and on its own host.
std::vector<Finding> findings_alone(const std::string& where, const std::string& message,
                                    const std::vector<std::string>& seen, const HostFacts& host,
                                    const Limits& limits) {
  std::vector<Finding> findings;
  const auto add = [&](const std::string& what) {
    const std::string remedy = join_remedy(what);
    findings.push_back(
        {true, where, what, remedy.empty() ? "see what the other workers report" : remedy});
  };
  add(message);
  for (const std::string& line : seen) add(line);
  for (const Finding& finding : diagnose({{host}, {}}, limits)) findings.push_back(finding);
  return findings;
}

/// Reads the facts of this host in a separate thread, which a file system or a driver may hold
/// forever.
class HostReader {
 public:
  explicit HostReader(const HostOptions& options)
      : limit_(options.limit), end_(SteadyClock::now() + limit_) {
    std::packaged_task<HostFacts()> task([options] { return read_host(options); });
    facts_ = task.get_future().share();
    std::thread(std::move(task)).detach();
  }

  bool has_ended() const {
    return facts_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  /// Waits until the limit. \returns the name of the host and a fault if the others are not known then.
  HostFacts facts() const {
    if (facts_.wait_until(end_) == std::future_status::ready) return facts_.get();
    HostFacts host = read_name();
    host.fault = fmt::format("its file systems or drivers have not answered within {} s",
                             limit_.count() / 1000);
    return host;
  }

 private:
  std::chrono::milliseconds limit_;
  SteadyClock::time_point end_;
  std::shared_future<HostFacts> facts_;
};

int examine(const Arguments& arguments, const lockstep::ResolvedCluster& cluster,
            const lockstep::Secret& secret, const std::string& origin, const HostReader& looking) {
  const auto began = SteadyClock::now();
  bool has_joined = false;
  const auto facts = [&] {
    HostFacts host = looking.facts();
    host.rank = static_cast<std::int64_t>(cluster.rank.value_or(0));
    host.secret = origin;
    return host;
  };
  if (cluster.world_size == 1) {
    const JobFacts job{{facts()}, {}};
    const auto findings = diagnose(job, arguments.limits);
    print(stdout, report(job, findings));
    return count_problems(findings) == 0 ? 0 : 1;
  }
  Warnings warnings;
  try {
    lockstep::Rendezvous job({.cluster = cluster,
                              .secret = secret,
                              .signature = {{"program", "lockstep-doctor"}},
                              .log = [&](lockstep::LogLevel level, std::string_view line) {
                                if (level == lockstep::LogLevel::warning) warnings.add(line);
                              }});
    has_joined = true;
    Examination examination(job, cluster);
    examination.connect(cluster.rendezvous_timeout);
    examination.measure();
    const JobFacts all = examination.gather(facts());
    int code = 0;
    if (job.rank() == 0) {
      const auto findings = diagnose(all, arguments.limits);
      print(stdout, fmt::format("lockstep-doctor: {} workers, from {}, chief {}\n\n{}", job.size(),
                                cluster.source, job.address_of(0), report(all, findings)));
      code = count_problems(findings) == 0 ? 0 : 1;
    }
    code = examination.share_verdict(code);
    job.leave();
    return code;
  } catch (const lockstep::Error& error) {
    const std::string where =
        cluster.rank ? fmt::format("rank {}", *cluster.rank) : std::string("this worker");
    std::string text;
    const auto findings =
        findings_alone(where, error.what(), warnings.lines(), facts(), arguments.limits);
    for (const Finding& finding : findings) text += finding_text(finding);
    print(stderr, text + verdict_text(count_problems(findings), 0));
    // Launchers end all workers at the first failure: the others report first.
    constexpr std::chrono::milliseconds grace{1500};
    std::this_thread::sleep_until(has_joined ? SteadyClock::now() + grace
                                             : began + cluster.rendezvous_timeout + grace);
    return 1;
  }
}

int run(int argc, char** argv) {
  Arguments arguments;
  lockstep::ResolvedCluster cluster;
  lockstep::Secret secret;
  const lockstep::Environment environment = lockstep::process_environment();
  try {
    arguments = parse(argc, argv);
    cluster = lockstep::resolve_cluster(environment, {.allow_single = !arguments.has_servers,
                                                      .has_servers = arguments.has_servers});
    if (arguments.wait)
      cluster.rendezvous_timeout =
          std::chrono::milliseconds(static_cast<std::int64_t>(*arguments.wait * 1000));
    else if (!lockstep::detail::variable(environment, "LOCKSTEP_RENDEZVOUS_TIMEOUT"))
      cluster.rendezvous_timeout = std::chrono::seconds(3);
    secret = lockstep::read_secret(environment, cluster);
    arguments.host.elastic = lockstep::detail::elastic_settings({}, environment);
    const std::size_t least = arguments.host.elastic.min_workers;
    if (cluster.world_size > 1 && least > cluster.world_size)
      throw lockstep::ClusterError("LOCKSTEP_MIN_WORKERS={} is more than the {} workers of the job",
                                   least, cluster.world_size);
  } catch (const CLI::Success&) {
    return 0;
  } catch (const std::exception& error) {
    print(stderr, fmt::format("lockstep-doctor: {}\n", error.what()));
    return 2;
  }
  const HostReader looking(arguments.host);
  int code = 1;
  try {
    code = examine(arguments, cluster, secret, secret_origin(environment, secret), looking);
  } catch (const std::exception& error) {
    print(stderr, fmt::format("lockstep-doctor: {}\n", error.what()));
  }
  if (!looking.has_ended()) std::_Exit(code);  // its thread may use what an ordinary end destroys
  return code;
}

}  // namespace
}  // namespace lockstep_doctor

int main(int argc, char** argv) { return lockstep_doctor::run(argc, argv); }
