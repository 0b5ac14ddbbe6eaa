// lockstep-run: starts the workers of a job, on this machine or on several hosts, stops all of them if
// one fails, and starts them again if --max-restarts allows it. With --elastic a failed worker alone is
// started again. With --check it starts lockstep-doctor instead.
//
// Exit code: 0 if all workers exited with 0, with --elastic those that were left at the end; otherwise
// the code of the first failure of the last start, which is 128 + n for a worker killed by signal n;
// 128 + n after signal n to lockstep-run itself (130 after Ctrl-C); 2 for an invalid command line, before
// any worker is started.
#include <poll.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/core/version.hpp>

#include "run_check.hpp"
#include "run_child.hpp"
#include "run_elastic.hpp"
#include "run_hosts.hpp"
#include "run_job.hpp"
#include "run_launcher.hpp"
#include "run_remote.hpp"
#include "run_restart.hpp"

namespace lockstep_run {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::size_t workers = 0, servers = 0;
  std::vector<std::string> hosts;  ///< of all ranks; empty: all on this machine
  bool is_worker = false;      ///< mpirun or srun has started this process as one of the workers
  std::set<std::string> here;  ///< those that are this machine
  std::optional<std::uint16_t> port;
  std::vector<std::pair<std::string, std::string>> exported;
  bool checks = false;
  std::chrono::milliseconds time_to_report{1000};  ///< for the others after a failure
  std::string log_folder;
  std::optional<std::size_t> elastic;  ///< workers without which the job ends; nullopt: all
  std::size_t max_restarts = 0;
  std::chrono::duration<double> restart_delay{1};
  std::vector<std::string> command;
};

/// The hosts of all ranks; empty if they run on this machine. \throws CLI::ValidationError
std::vector<std::string> choose_hosts(const std::string& list, const std::string& file,
                                      std::size_t workers, std::size_t servers) {
  try {
    if (!list.empty()) return place_workers(parse_hosts(list), workers, servers);
    if (!file.empty()) return place_workers(read_hostfile(file), workers, servers);
    if (workers > 0) return {};
    const std::vector<HostSlots> hosts = hosts_of_scheduler();
    if (!hosts.empty()) return place_workers(hosts, 0);
  } catch (const std::exception& error) {
    throw CLI::ValidationError("hosts", error.what());
  }
  throw CLI::ValidationError(
      "-n", "missing; give the number of workers, or hosts by -H a:2,b:4 or --hostfile FILE");
}

/// Refuses the options of a job in a process that `launcher` has started as one of its workers.
/// \throws CLI::ValidationError
void check_worker(const CLI::App& app, const std::string& launcher) {
  for (const char* option : {"--max-restarts", "--elastic", "--log-dir", "--port", "--ps"})
    if (app.count(option) > 0)
      throw CLI::ValidationError(
          option, fmt::format("{0} starts the workers here, and lockstep-run only becomes one of "
                              "them: leave out the option, or start lockstep-run without {0}",
                              launcher));
}

/// All workers of a check report before any is ended: those that miss another one do so at the end of
/// their wait.
void prepare_check(Arguments& arguments) {
  std::optional<std::string> variable;
  if (const char* value = std::getenv("LOCKSTEP_RENDEZVOUS_TIMEOUT")) variable = value;
  for (const auto& [name, value] : arguments.exported)
    if (name == "LOCKSTEP_RENDEZVOUS_TIMEOUT") variable = value;
  const bool spans_hosts =
      std::any_of(arguments.hosts.begin(), arguments.hosts.end(),
                  [&](const std::string& host) { return !arguments.here.contains(host); });
  const CheckWait wait = check_wait(arguments.command, variable, spans_hosts);
  if (wait.is_added)
    arguments.command.insert(arguments.command.end(),
                             {"--wait", fmt::format("{:g}", wait.seconds)});
  constexpr std::chrono::seconds spare{5};
  arguments.time_to_report =
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(wait.seconds)) +
      spare;
}

/// \throws CLI::ParseError, also for --help and --version.
Arguments parse(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "lockstep-run -n N PROGRAM ARGS...: starts PROGRAM N times on this machine, or on the hosts "
      "of -H or --hostfile, as the workers of one job, and stops all of them if one fails. In an "
      "allocation of Slurm (salloc, sbatch) or PBS without -n, -H and --hostfile it starts them on "
      "its nodes; where srun or mpirun has started it several times it runs PROGRAM as one worker. "
      "LOCKSTEP_RSH replaces ssh.",
      "lockstep-run");
  app.add_option("-n,--workers", arguments.workers,
                 "workers to start; default: one for each slot of the hosts")
      ->check(CLI::Range(1, 1024));
  app.add_option("--ps", arguments.servers,
                 "parameter servers to start after the workers, for a program with "
                 "ls::ParameterServer; with hosts they are the last ranks")
      ->check(CLI::Range(1, 1024));
  std::string hosts, hostfile;
  std::vector<std::string> exports;
  CLI::Option* const list = app.add_option(
      "-H,--host", hosts,
      "hosts, each with its number of workers: a:2,b:4. The first one's first worker is the chief. "
      "Workers on other hosts are started by ssh, without a password, in the same folder; "
      "lockstep-run must be installed there");
  app.add_option("--hostfile", hostfile, "file with a line \"HOST slots=N\" for each host")
      ->excludes(list);
  app.add_option(
         "--port", arguments.port,
         "port of the chief, for jobs on several hosts; default: a random one from 20000 to "
         "29000")
      ->check(CLI::Range(1, 65535));
  app.add_option("-x,--export", exports,
                 "NAME or NAME=VALUE: an environment variable for the workers; those on other "
                 "hosts get the ones named LOCKSTEP_... in any case")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  app.add_flag("--check", arguments.checks,
               "start lockstep-doctor instead of PROGRAM, which may be left out: prints a table of "
               "the hosts and connections, and each problem with its remedy; exit code 0 if the "
               "job can train, 1 if not. PROGRAM's --data, --checkpoint and --save are checked");
  app.add_option(
      "--log-dir", arguments.log_folder,
      "write each worker's output to DIR/rank-N.log; default: to stdout and stderr, each "
      "line prefixed with the rank");
  app.add_option(
         "--max-restarts", arguments.max_restarts,
         "start all workers again, at most this many times, after a worker has crashed: was "
         "killed, or exited with a code other than 2, 126, 127, 130 and 143. If PROGRAM has "
         "the option --checkpoint DIR, the new workers continue from the newest checkpoint "
         "(--resume is added), and a job that fails three times without a newer one ends")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option(
         "--elastic", arguments.elastic,
         "a process that crashes does not end the others, which train on if at least this many "
         "workers are left; it alone is started again, as --max-restarts allows, and joins them. The "
         "processes find the number in LOCKSTEP_MIN_WORKERS; parameter servers do not count. Implied "
         "by --elastic MIN or --mode async of lockstep's own programs, unless there is --max-restarts")
      ->type_name("MIN")
      ->check(CLI::Range(1, 1024));
  double delay = arguments.restart_delay.count();
  app.add_option(
         "--restart-delay", delay,
         "seconds until a restart; twice as long, at most 30, after each crash without a newer "
         "checkpoint, and with --elastic if the same worker crashed less than a minute after it "
         "started")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
  app.set_version_flag("--version",
                       fmt::format("lockstep {}\nfmt {}.{}.{}", LOCKSTEP_VERSION,
                                   FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100),
                       "print the versions and exit");
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    throw;
  } catch (const CLI::CallForVersion& version) {
    std::fputs(fmt::format("{}\n", version.what()).c_str(), stdout);
    throw;
  }
  arguments.restart_delay = std::chrono::duration<double>(delay);
  arguments.command = app.remaining();
  if (!arguments.command.empty() && arguments.command.front() == "--")
    arguments.command.erase(arguments.command.begin());
  if (arguments.command.empty() && !arguments.checks)
    throw CLI::ValidationError("PROGRAM", "missing; name the program that the workers run");
  if (!arguments.command.empty() && arguments.command.front().starts_with('-'))
    throw CLI::ValidationError(arguments.command.front(), "lockstep-run has no such option");
  if (arguments.checks)
    arguments.command = doctor_command(arguments.command, arguments.servers > 0);
  const std::string launcher = launcher_of_worker();
  arguments.is_worker =
      arguments.workers == 0 && hosts.empty() && hostfile.empty() && !launcher.empty();
  if (arguments.is_worker)
    check_worker(app, launcher);
  else
    arguments.hosts = choose_hosts(
        hosts, hostfile, arguments.workers == 0 ? 0 : arguments.workers + arguments.servers,
        arguments.servers);
  try {
    arguments.exported = exported_variables(exports, !arguments.hosts.empty());
  } catch (const std::runtime_error& error) {
    throw CLI::ValidationError("-x", error.what());
  }
  try {
    // Names may take long to look up: Ctrl-C ends this process here, and is not yet for workers.
    arguments.here = hosts_here(arguments.hosts);
  } catch (const std::runtime_error& error) {
    throw CLI::ValidationError("hosts", error.what());
  }
  const std::size_t workers = arguments.hosts.empty() ? arguments.workers : arguments.hosts.size();
  if (arguments.servers > 0 && !arguments.is_worker && workers <= arguments.servers &&
      !arguments.hosts.empty())
    throw CLI::ValidationError(
        fmt::format("--ps {}", arguments.servers),
        fmt::format("the hosts have {} places, and the workers need some; add hosts", workers));
  // With hosts the servers have some of their places, and servers do not count.
  const std::size_t computing =
      arguments.hosts.empty() ? workers : workers - std::min(workers, arguments.servers);
  if (arguments.elastic && *arguments.elastic > computing)
    throw CLI::ValidationError(
        fmt::format("--elastic {}", *arguments.elastic),
        fmt::format("the job has only {} workers; write at most that", computing));
  if (arguments.elastic)
    arguments.exported.emplace_back("LOCKSTEP_MIN_WORKERS", std::to_string(*arguments.elastic));
  else if (!arguments.checks && arguments.max_restarts == 0 && !arguments.command.empty())
    arguments.elastic = least_of(arguments.command);  // restarts of all need no survivors
  if (arguments.checks && !arguments.is_worker) prepare_check(arguments);
  try {
    ends_job(SIGUSR1);
  } catch (const lockstep::UsageError& error) {
    throw CLI::ValidationError("environment", error.what());
  }
  return arguments;
}

/// Path of the program: found as by the shell, or in the folder of lockstep-run.
std::string find_program(const std::string& name) {
  std::vector<fs::path> places;
  if (name.find('/') != std::string::npos) {
    places.emplace_back(name);
  } else {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');)
      places.push_back(fs::path(folder.empty() ? "." : folder) / name);
    places.push_back(own_file().parent_path() / name);
  }
  for (const fs::path& place : places) {
    std::error_code unreadable;  // a folder in PATH may be unreadable
    if (fs::is_regular_file(place, unreadable) && ::access(place.c_str(), X_OK) == 0)
      return place.string();
  }
  throw CLI::ValidationError(name, "not found, or not an executable program");
}

/// Waits. \returns the signal that ends lockstep-run meanwhile, 0 if none.
int wait_for_signal(const Signals& signals, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (;;) {
    while (const int signal = signals.next())
      if (ends_job(signal)) {
        Output::drop_excess();
        return signal;
      }
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= std::chrono::milliseconds(0)) return 0;
    pollfd waited{signals.number(), POLLIN, 0};
    const auto most = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    ::poll(&waited, 1, static_cast<int>(most));
  }
}

/// 1 if the job cannot train, whatever the reason.
int code_of_check(const Outcome& outcome) {
  if (outcome.is_interrupted || outcome.code == 0 || outcome.code == 2) return outcome.code;
  return 1;
}

/// Becomes the program. \throws std::runtime_error
[[noreturn]] void become(const Arguments& arguments, const Command& command) {
  for (const auto& [name, value] : arguments.exported) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : command.arguments)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execv(command.file.c_str(), words.data());
  fail(command.file);
}

/// Starts the job, and single workers of it again. \returns the exit code.
int supervise_elastic(const Arguments& arguments, Command command, const Signals& signals) {
  command.variables = arguments.exported;
  const ElasticOptions options{*arguments.elastic, arguments.max_restarts, arguments.restart_delay,
                               arguments.servers};
  const auto run = [&](const auto& job) {
    return ElasticLauncher(command, job, arguments.log_folder, options).wait(signals);
  };
  if (arguments.hosts.empty()) return run(LocalJob(arguments.workers, arguments.servers));
  return run(HostsJob(arguments.hosts, arguments.here, arguments.port, arguments.servers));
}

/// Starts the job, and again after crashes. \returns the exit code.
int supervise(const Arguments& arguments, Command command, const Signals& signals) {
  const bool is_local = arguments.hosts.empty();
  const std::string chief =
      is_local || arguments.here.contains(arguments.hosts[0]) ? "" : arguments.hosts[0];
  Restarts restarts(arguments.checks ? 0 : arguments.max_restarts, arguments.restart_delay,
                    arguments.command, chief);
  for (;;) {
    command.variables = arguments.exported;
    command.variables.emplace_back("LOCKSTEP_RESTART", std::to_string(restarts.count()));
    const auto start = [&](const auto& job) {
      return Launcher(command, job, arguments.log_folder, arguments.time_to_report).wait(signals);
    };
    if (const int signal = wait_for_signal(signals, std::chrono::milliseconds(0)))
      return 128 + signal;
    const Outcome outcome =
        is_local
            ? start(LocalJob(arguments.workers, arguments.servers))
            : start(HostsJob(arguments.hosts, arguments.here, arguments.port, arguments.servers));
    const Decision next = restarts.after(outcome);
    if (!next.sentence.empty() && !(arguments.checks && outcome.code == 1)) log_line(next.sentence);
    if (!next.is_restart) return arguments.checks ? code_of_check(outcome) : outcome.code;
    if (const int signal = wait_for_signal(signals, next.delay)) return 128 + signal;
    command.arguments = resuming(arguments.command);
    command.appends_to_logs = true;
  }
}

int run(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--agent") {
    try {
      return run_agent(find_program);
    } catch (const std::exception& error) {
      log_line(error.what());
      return 2;
    }
  }
  Arguments arguments;
  Command command;
  try {
    arguments = parse(argc, argv);
    const bool is_local = arguments.hosts.empty();
    command.arguments = arguments.command;
    command.unset = is_local ? LocalJob::foreign_variables() : HostsJob::foreign_variables();
    command.is_output_prefixed = !arguments.checks;
    try {
      command.file = find_program(arguments.command.front());
    } catch (const CLI::ValidationError&) {
      if (is_local) throw;
      command.file = arguments.command.front();  // other hosts may have it
    }
  } catch (const CLI::Success&) {
    return 0;
  } catch (const CLI::ParseError& error) {
    log_line(error.what());
    return 2;
  }
  try {
    if (arguments.is_worker) become(arguments, command);
    if (!arguments.log_folder.empty()) fs::create_directories(arguments.log_folder);
  } catch (const std::exception& error) {
    log_line(error.what());
    return 1;
  }
  const Signals signals;
  int code = 1;
  try {
    code = arguments.elastic && !arguments.checks ? supervise_elastic(arguments, command, signals)
                                                  : supervise(arguments, command, signals);
  } catch (const std::exception& error) {
    log_line(error.what());
  }
  if (!wait_for_output(signals)) ::_exit(code);  // the thread of the output would wait for ever
  return code;
}

}  // namespace
}  // namespace lockstep_run

int main(int argc, char** argv) { return lockstep_run::run(argc, argv); }
