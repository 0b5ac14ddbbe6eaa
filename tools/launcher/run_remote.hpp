/// \file
/// Workers on other hosts: lockstep-run starts an agent there, by ssh or srun, and sends it an order
/// over its standard input. Invariants: the secret is in that stream only, never on a command line or in
/// an environment that others can read; an agent whose stream ends or falls silent, for whatever reason, ends its worker.
///
///     lockstep-run ── ssh host lockstep-run --agent     one per worker
///        stdin:  order ... "go\n"  then  "signal 15\n", and "alive\n" every few seconds
///        stdout, stderr, exit code: of the worker
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <string.h>  // NOLINT(modernize-deprecated-headers): explicit_bzero
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/cluster/description/host_port.hpp>
#include <lockstep/cluster/description/spec.hpp>
#include <lockstep/core/quote.hpp>

#include "run_child.hpp"
#include "run_hosts.hpp"
#include "run_job.hpp"
#include "run_launcher.hpp"
#include "run_output.hpp"
#include "run_secret.hpp"

namespace lockstep_run {

constexpr std::string_view order_head = "lockstep-run agent 3";
constexpr std::size_t spare_lines = 8;

/// The worker that an agent is to start.
struct Order {
  std::string folder;
  Command command;                       ///< `file` is not used: the agent looks for the program
  std::unique_ptr<SecretFile> secret{};  ///< on the agent's side; null if the job has none
};

/// "name size\nbytes\n" for each part except the secret; Child adds that, and "go\n" at the end.
/// The first lines may get lost: a start-up file of the host may read some.
inline std::string encode(const Order& order) {
  std::string text = std::string(spare_lines, '\n') + std::string(order_head) + "\n";
  const auto add = [&](std::string_view name, std::string_view bytes) {
    text += fmt::format("{} {}\n{}\n", name, bytes.size(), bytes);
  };
  add("folder", order.folder);
  for (const auto& argument : order.command.arguments) add("argument", argument);
  for (const auto& [name, value] : order.command.variables) add("variable", name + "=" + value);
  for (const auto& name : order.command.unset) add("unset", name);
  return text;
}

/// Lines and bytes from a descriptor. They may be secret.
class OrderReader {
 public:
  explicit OrderReader(int from) : from_(from) {}

  /// The next line without its end; nullopt at the end of the stream.
  std::optional<std::string> line() {
    std::size_t end;
    while ((end = rest().find('\n')) == std::string_view::npos)
      if (rest().size() > most || !fill()) return std::nullopt;
    std::string result(rest().substr(0, end));
    begin_ += end + 1;
    return result;
  }
  /// The next line if it has arrived.
  std::optional<std::string> line_here() {
    return rest().find('\n') == std::string_view::npos ? std::nullopt : line();
  }
  /// Valid until the next call.
  std::optional<std::string_view> bytes(std::size_t count) {
    while (rest().size() < count)
      if (!fill()) return std::nullopt;
    const std::string_view result = rest().substr(0, count);
    begin_ += count;
    return result;
  }
  /// Wipes what has been read. Call it after the order.
  void wipe() { ::explicit_bzero(pages_.data(), begin_); }
  /// Reads once. \returns false at the end of the stream, and after a silence.
  bool fill() {
    pollfd waited{from_, POLLIN, 0};
    int ready;
    do ready = ::poll(&waited, 1, static_cast<int>(silence.count()));
    while (ready < 0 && errno == EINTR);
    if (ready == 0) return false;
    if (end_ == pages_.size()) {
      std::memmove(pages_.data(), pages_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    ssize_t n;
    do n = ::read(from_, pages_.data() + end_, pages_.size() - end_);
    while (n < 0 && errno == EINTR);
    if (n > 0) end_ += static_cast<std::size_t>(n);
    return n > 0;
  }

  static constexpr std::size_t most = std::size_t{1} << 20;  // bytes of an order
  /// The launcher sends a line every few seconds, SignsOfLife::interval.
  static constexpr std::chrono::milliseconds silence{20'000};

 private:
  std::string_view rest() const { return {pages_.data() + begin_, end_ - begin_}; }

  int from_;
  SecretPages pages_{2 * most};
  std::size_t begin_ = 0, end_ = 0;  // of what was not consumed yet
};

/// \throws std::runtime_error
inline Order read_order(OrderReader& reader) {
  std::optional<std::string> first = reader.line();
  for (std::size_t i = 0; i < spare_lines && first == ""; ++i) first = reader.line();
  if (first != order_head) {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    throw std::runtime_error(fmt::format(
        "--agent: the order of lockstep-run does not begin with \"{}\"; either lockstep is another "
        "version on this host, or something here reads standard input before this program, such as "
        "a start-up file (~/.bashrc): on the launcher's host, 'echo x | ssh {} cat' must print x",
        order_head, host.data()));
  }
  Order order;
  while (const auto head = reader.line()) {
    if (*head == "go") {
      reader.wipe();
      return order;
    }
    const std::size_t space = std::min(head->find(' '), head->size() - 1);
    const auto size = lockstep::detail::whole_number<std::size_t>(head->substr(space + 1));
    const auto read = size && *size <= OrderReader::most ? reader.bytes(*size) : std::nullopt;
    if (!read) break;
    const std::string name = head->substr(0, space);
    if (name == "secret") {
      if (!read->empty()) order.secret = std::make_unique<SecretFile>(*read);
      if (reader.bytes(1) != "\n") break;
      continue;
    }
    const std::string value(*read);
    if (reader.bytes(1) != "\n") break;
    const std::size_t equals = std::min(value.find('='), value.size());
    if (name == "folder") order.folder = value;
    if (name == "argument") order.command.arguments.push_back(value);
    if (name == "variable")
      order.command.variables.emplace_back(value.substr(0, equals),
                                           value.substr(std::min(equals + 1, value.size())));
    if (name == "unset") order.command.unset.push_back(value);
  }
  throw std::runtime_error("--agent: the order is incomplete: the connection ended");
}

/// A word of a POSIX shell.
inline std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

/// The program file of this process. In a folder of `./dev static` the kernel knows only the dynamic
/// linker, FOLDER/lib/ld-linux..., and the program to start is FOLDER/lockstep-run.
inline std::filesystem::path own_file() {
  std::error_code error;
  const auto file = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!file.filename().string().starts_with("ld-")) return file;
  return file.parent_path().parent_path() / "lockstep-run";
}

/// How commands are started on other hosts: LOCKSTEP_RSH, else srun in an allocation of Slurm, else ssh.
/// An ssh must not ask, and must notice a host that is gone; ssh takes the first of two values, so
/// those of LOCKSTEP_RSH come first.
/// \returns the arguments that run the agent on `host`.
inline std::vector<std::string> agent_command(const std::string& host) {
  const std::string own = own_file().string();
  const std::string script =
      "if [ -x \"$0\" ]; then exec \"$0\" --agent; else exec lockstep-run --agent; fi";
  std::vector<std::string> command;
  const std::string shell = variable_text("LOCKSTEP_RSH");
  if (shell.empty() && is_in_allocation())
    return {"srun",
            "--nodes=1",
            "--ntasks=1",
            "--nodelist=" + host,
            "--overlap",
            "--quiet",
            "--cpu-bind=none",
            "sh",
            "-c",
            script,
            own};
  std::istringstream words(shell.empty() ? "ssh -x" : shell);
  for (std::string word; words >> word;) command.push_back(word);
  if (!command.empty() && std::filesystem::path(command[0]).filename() == "ssh")
    for (const char* option :
         {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"}) {
      command.emplace_back("-o");
      command.emplace_back(option);
    }
  command.push_back(host);
  // The login shell there may be another one than a POSIX shell.
  command.push_back(fmt::format("exec sh -c {} {}", shell_word(script), shell_word(own)));
  return command;
}

/// Those of `hosts` that are this machine. It looks up names. \throws std::runtime_error for a loopback
/// address if others are other machines
inline std::set<std::string> hosts_here(const std::vector<std::string>& hosts) {
  const std::set<std::string> all(hosts.begin(), hosts.end());
  std::set<std::string> here;
  for (const std::string& host : all)
    if (is_this_machine(host)) here.insert(host);
  const auto loopback = std::find_if(here.begin(), here.end(), [](const std::string& host) {
    return lockstep::is_loopback(host);
  });
  if (here.size() < all.size() && loopback != here.end())
    throw std::runtime_error(fmt::format(
        "{} is this machine for each host; write the name by which the other hosts reach it",
        *loopback));
  return here;
}

/// A job of workers on several hosts.
class HostsJob {
 public:
  /// `hosts` are those of all ranks, the last `servers` of which are parameter servers, `here` those
  /// that are this machine. \throws std::runtime_error
  HostsJob(const std::vector<std::string>& hosts, const std::set<std::string>& here,
           std::optional<std::uint16_t> port, std::size_t servers)
      : id_("run-" + random_text(8)),
        secret_text_(std::make_shared<SecretText>()),
        secret_(secret_text_->text()) {
    const std::uint16_t first = port.value_or(random_port());
    if (hosts.size() > std::size_t{65536} - first)
      throw std::runtime_error(
          fmt::format("--port {}: {} workers do not fit above it", first, hosts.size()));
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      cluster_.add(
          rank + servers < hosts.size() ? lockstep::TaskType::worker : lockstep::TaskType::ps,
          lockstep::to_string(
              lockstep::HostPort{hosts[rank], static_cast<std::uint16_t>(first + rank)}));
      hosts_.push_back(here.contains(hosts[rank]) ? "" : hosts[rank]);
    }
  }

  std::size_t workers() const { return hosts_.size(); }
  const std::string& host(std::size_t rank) const { return hosts_[rank]; }

  std::vector<std::pair<std::string, std::string>> variables(std::size_t rank) const {
    std::vector<std::pair<std::string, std::string>> variables;
    variables.emplace_back("TF_CONFIG", cluster_.tf_config(cluster_.task(rank)));
    variables.emplace_back("LOCKSTEP_LAUNCHER", "tf_config");
    variables.emplace_back("LOCKSTEP_JOB_ID", id_);
    variables.emplace_back("LOCKSTEP_RANK", std::to_string(rank));
    if (hosts_[rank].empty()) variables.emplace_back("LOCKSTEP_SECRET_FILE", secret_.path());
    return variables;
  }
  /// The command that starts a worker on its host.
  Command order(std::size_t rank, const Command& command) const {
    Command remote = command;
    remote.arguments = agent_command(hosts_[rank]);
    remote.file = find_in_path(remote.arguments[0]);
    remote.variables.clear();
    remote.order = encode(Order{std::filesystem::current_path().string(), command});
    remote.secret = secret_text_;
    return remote;
  }
  /// Variables to unset, since they may describe another job. Those for networks are meant for this one.
  static std::vector<std::string> foreign_variables() {
    return {"LOCKSTEP_SECRET", "LOCKSTEP_WORLD_SIZE",   "LOCKSTEP_COORDINATOR",
            "LOCKSTEP_PORT",   "LOCKSTEP_DATA_ADDRESS", "LOCKSTEP_MIN_WORKERS"};
  }

 private:
  /// Below those that the system gives to clients; the chief reports one that is in use.
  static std::uint16_t random_port() {
    std::random_device random;
    return static_cast<std::uint16_t>(std::uniform_int_distribution(20'000, 29'000)(random));
  }
  static std::string find_in_path(const std::string& name) {
    if (name.find('/') != std::string::npos) return name;
    std::istringstream folders(variable_text("PATH"));
    for (std::string folder; std::getline(folders, folder, ':');)
      if (::access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
    throw std::runtime_error(fmt::format(
        "{} is not in PATH; install it, or set LOCKSTEP_RSH to another remote shell", name));
  }

  std::string id_;
  std::shared_ptr<const SecretText> secret_text_;
  SecretFile secret_;
  std::vector<std::string> hosts_;
  lockstep::ClusterSpec cluster_;
};

/// The variables that workers on all hosts get: those named by -x, as NAME or NAME=VALUE; before them
/// LOCKSTEP_..., if there are other hosts, since workers on this machine have them. \throws
/// std::runtime_error
inline std::vector<std::pair<std::string, std::string>> exported_variables(
    const std::vector<std::string>& named, bool spans_hosts) {
  std::vector<std::pair<std::string, std::string>> result;
  const std::vector<std::string> foreign = HostsJob::foreign_variables();
  const auto is_own = [&](const std::string& name) {
    return name.starts_with("LOCKSTEP_") && name != "LOCKSTEP_RSH" &&
           name != "LOCKSTEP_SECRET_FILE" && name != "LOCKSTEP_RESTART" &&
           std::find(foreign.begin(), foreign.end(), name) == foreign.end();
  };
  for (char** entry = environ; spans_hosts && *entry; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = std::min(text.find('='), text.size() - 1);
    if (is_own(text.substr(0, equals)))
      result.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const std::string& text : named) {
    const std::size_t equals = text.find('=');
    if (equals == 0) throw std::runtime_error(fmt::format("-x {}: the name is missing", text));
    if (equals != std::string::npos)
      result.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    else if (const char* value = std::getenv(text.c_str()))
      result.emplace_back(text, value);
    else
      throw std::runtime_error(fmt::format("-x {}: this variable is not set", text));
  }
  return result;
}

/// Reads the launcher's lines and passes its signals to the worker, in a separate thread, since the
/// connection may hold up the worker's output. Ends the worker when the stream has ended, or when it
/// has been silent: a connection may die without an end.
class Remote {
 public:
  Remote(OrderReader& reader, Child& worker) : reader_(reader), worker_(worker) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot create a pipe");
    stopped_ = Descriptor(ends[0]);
    stop_ = Descriptor(ends[1]);
    thread_ = std::thread([this] { run(); });
  }
  ~Remote() {
    stop_.close();
    thread_.join();
  }
  void send(int signal) {
    if (ends_job(signal)) Output::drop_excess();
    const std::scoped_lock lock(mutex_);
    worker_.send(signal);
  }
  void collect() {
    const std::scoped_lock lock(mutex_);  // no signal to a process that has its number later
    worker_.collect();
  }

 private:
  static constexpr std::chrono::milliseconds time_to_end{5'000}, time_to_die{2'000};

  void run() {
    while (const auto line = next_line()) {
      const auto signal = lockstep::detail::whole_number<unsigned>(
          line->starts_with("signal ") ? line->substr(7) : "");
      if (signal && *signal < 65) send(static_cast<int>(*signal));
    }
    if (is_stopped(std::chrono::milliseconds(0))) return;
    send(SIGTERM);
    if (is_stopped(time_to_end)) return;
    send(SIGKILL);
    if (is_stopped(time_to_die)) return;
    ::_exit(128 + SIGKILL);  // nobody reads the worker's output
  }
  /// nullopt at the end of the stream, after a silence, and when this object ends.
  std::optional<std::string> next_line() {
    for (;;) {
      if (auto line = reader_.line_here()) return line;
      std::array<pollfd, 2> waited{{{STDIN_FILENO, POLLIN, 0}, {stopped_.number(), POLLIN, 0}}};
      const auto most = static_cast<int>(OrderReader::silence.count());
      const int ready = ::poll(waited.data(), waited.size(), most);
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0 || waited[1].revents != 0 || !reader_.fill()) return std::nullopt;
    }
  }
  bool is_stopped(std::chrono::milliseconds time) const {
    pollfd waited{stopped_.number(), POLLIN, 0};
    return ::poll(&waited, 1, static_cast<int>(time.count())) > 0;
  }

  OrderReader& reader_;
  Child& worker_;
  std::mutex mutex_;
  Descriptor stopped_, stop_;
  std::thread thread_;
};

/// Runs one worker for a lockstep-run on another host. \returns the exit code; 128 + n after signal n.
inline int run_agent(const std::function<std::string(const std::string&)>& find_program) {
  const Signals signals;
  OrderReader reader(STDIN_FILENO);
  Order order = read_order(reader);
  if (::chdir(order.folder.c_str()) != 0)
    throw std::runtime_error(
        fmt::format("{}: {}; lockstep-run starts all workers in its own folder", order.folder,
                    std::strerror(errno)));
  if (order.command.arguments.empty())
    throw std::runtime_error("--agent: the order has no program");
  order.command.file = find_program(order.command.arguments[0]);
  order.command.is_output_prefixed = order.command.are_errors_prefixed = false;
  if (order.secret)
    order.command.variables.emplace_back("LOCKSTEP_SECRET_FILE", order.secret->path());
  Child worker(0, order.command, "");
  Remote remote(reader, worker);
  while (worker.running()) {
    std::vector<pollfd> waited{{signals.number(), POLLIN, 0},
                               {Output::changes().number(), POLLIN, 0}};
    for (Stream& stream : worker.streams())
      if (stream.is_wanted()) waited.push_back({stream.number(), POLLIN, 0});
    ::poll(waited.data(), waited.size(), -1);
    Output::clear_changes();
    while (const int signal = signals.next())
      if (signal != SIGCHLD) remote.send(signal);
    for (Stream& stream : worker.streams())
      if (stream.is_wanted()) stream.pump();
    if (worker.has_ended()) remote.collect();
  }
  for (Stream& stream : worker.streams()) stream.finish();
  // While nobody reads the output, the other thread ends this process with the connection.
  while (!Output::are_written()) {
    pollfd waited{Output::changes().number(), POLLIN, 0};
    ::poll(&waited, 1, -1);
    Output::clear_changes();
  }
  return worker.code();
}

}  // namespace lockstep_run
