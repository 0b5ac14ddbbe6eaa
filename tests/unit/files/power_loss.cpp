/// Power failures while a checkpoint is saved: the system calls of a save are recorded, and for each
/// moment the states are built that a disk may have afterwards. Data written after the last fsync of
/// their file may be missing, incomplete or zeros; names that changed after the last fsync of their
/// folder may have changed or not, each on its own.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdarg>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/files/checkpoint_directory.hpp"
#include "support/folder.hpp"

namespace ls = lockstep;
namespace fs = std::filesystem;
using ls::detail::CheckpointDirectory;
using ls::detail::CheckpointFile;

namespace {

struct Operation {
  enum Kind { mkdir, create, write, fsync, rename, exchange, unlink, rmdir } kind;
  std::string path, other{};  ///< other: the target of a rename, or the bytes of a write
};

bool recording = false;
std::vector<Operation> operations;

/// Records an operation that succeeded.
long record(long result, Operation operation) {
  if (recording && result >= 0) operations.push_back(std::move(operation));
  return result;
}
std::string path_of(int file) {
  std::error_code error;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(file), error);
}
int open_file(const char* path, int flags, unsigned mode) {
  const bool is_new = (flags & O_TRUNC) != 0 || ::access(path, F_OK) != 0;
  const auto file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  if (file >= 0 && (flags & O_CREAT) != 0 && is_new) record(0, {Operation::create, path});
  return file;
}

}  // namespace

// Instead of those of the C library, in all of this program.
extern "C" {
int recorded_open(const char* path, int flags, ...) __asm__("open");
int recorded_open64(const char* path, int flags, ...) __asm__("open64");
int recorded_mkdir(const char* path, mode_t mode) __asm__("mkdir");
int recorded_rename(const char* from, const char* to) __asm__("rename");
int recorded_renameat2(int, const char* from, int, const char* to, unsigned) __asm__("renameat2");
int recorded_unlink(const char* path) __asm__("unlink");
int recorded_rmdir(const char* path) __asm__("rmdir");
int recorded_fsync(int file) __asm__("fsync");
ssize_t recorded_write(int file, const void* p, size_t n) __asm__("write");

int recorded_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  return open_file(path, flags, mode);
}
int recorded_open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  return open_file(path, flags, mode);
}
int recorded_mkdir(const char* path, mode_t mode) {
  return static_cast<int>(
      record(::syscall(SYS_mkdirat, AT_FDCWD, path, mode), {Operation::mkdir, path}));
}
int recorded_rename(const char* from, const char* to) {
  return static_cast<int>(record(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0),
                                 {Operation::rename, from, to}));
}
int recorded_renameat2(int at, const char* from, int other, const char* to, unsigned flags) {
  return static_cast<int>(record(::syscall(SYS_renameat2, at, from, other, to, flags),
                                 {Operation::exchange, from, to}));
}
int recorded_unlink(const char* path) {
  return static_cast<int>(
      record(::syscall(SYS_unlinkat, AT_FDCWD, path, 0), {Operation::unlink, path}));
}
int recorded_rmdir(const char* path) {
  return static_cast<int>(
      record(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR), {Operation::rmdir, path}));
}
int recorded_fsync(int file) {
  return static_cast<int>(record(::syscall(SYS_fsync, file), {Operation::fsync, path_of(file)}));
}
ssize_t recorded_write(int file, const void* p, size_t n) {
  const long written = ::syscall(SYS_write, file, p, n);
  if (recording && written > 0)
    record(written, {Operation::write,
                     path_of(file),
                     {static_cast<const char*>(p), static_cast<std::size_t>(written)}});
  return written;
}
}

namespace {

/// The fate of data written after the last fsync of their file.
enum class Unsynced { missing, half, zeros, written };

/// A disk to which recorded operations are applied.
class Disk {
 public:
  explicit Disk(std::string root) : root_(std::move(root)) { nodes_.push_back({true}); }

  void apply(const Operation& o) {
    const auto [folder, name] = place_of(o.path);
    switch (o.kind) {
      case Operation::mkdir:
      case Operation::create:
        nodes_.push_back({o.kind == Operation::mkdir});
        return change(folder, {{name, nodes_.size() - 1}});
      case Operation::write:
        nodes_[node_of(o.path)].content += o.other;
        return;
      case Operation::fsync:
        return sync(node_of(o.path));
      case Operation::rename:
      case Operation::exchange: {
        const auto [other_folder, other_name] = place_of(o.other);
        REQUIRE(folder == other_folder);  // all that checkpoints need: one change
        const std::size_t node = node_of(o.path),
                          other = o.kind == Operation::exchange ? node_of(o.other) : none;
        return change(folder, {{name, other}, {other_name, node}});
      }
      case Operation::unlink:
      case Operation::rmdir:
        return change(folder, {{name, none}});
    }
  }

  using State = std::map<std::string, std::string>;  ///< contents by path; folders end with '/'

  /// Calls `check` with the states that are possible after a power failure now.
  void for_each_state(const std::function<void(const State&)>& check) {
    const std::size_t n = pending_.size();
    std::set<std::vector<bool>> choices;  // which of the pending changes are on the disk
    for (const bool all : {false, true}) choices.insert(std::vector<bool>(n, all));
    for (std::size_t i = 0; i < n; ++i)
      for (const bool kept : {false, true}) {
        std::vector<bool> one(n, !kept), up_to(n, !kept);
        one[i] = kept;
        for (std::size_t k = 0; k <= i; ++k) up_to[k] = kept;
        choices.insert(one);
        choices.insert(up_to);
      }
    for (const auto& kept : choices) {
      std::vector<Names> names;
      for (const Node& node : nodes_) names.push_back(node.durable_names);
      for (std::size_t i = 0; i < n; ++i)
        if (kept[i]) apply_to(names[pending_[i].folder], pending_[i].names);
      for (const Unsynced rest :
           {Unsynced::missing, Unsynced::half, Unsynced::zeros, Unsynced::written}) {
        State state;
        add(state, "/", 0, names, rest);
        check(state);
      }
    }
  }

 private:
  using Names = std::map<std::string, std::size_t>;  ///< nodes
  static constexpr std::size_t none = ~std::size_t{0};

  /// A file or folder, whatever its name.
  struct Node {
    bool is_folder = false;
    std::string content{};          ///< written
    std::size_t durable_bytes = 0;  ///< covered by an fsync
    Names names{}, durable_names{};
  };
  /// Names of a folder that change together, if they do; `none` removes one.
  struct Change {
    std::size_t folder;
    Names names;
  };

  std::size_t node_of(std::string_view path) const {
    std::size_t node = 0;
    for (path.remove_prefix(root_.size()); !path.empty();) {
      path.remove_prefix(1);
      const std::string_view name = path.substr(0, path.find('/'));
      node = nodes_[node].names.at(std::string(name));
      path.remove_prefix(name.size());
    }
    return node;
  }
  std::pair<std::size_t, std::string> place_of(const std::string& path) const {
    if (path == root_) return {none, {}};
    const std::size_t slash = path.rfind('/');
    return {node_of(path.substr(0, slash)), path.substr(slash + 1)};
  }
  static void apply_to(Names& names, const Names& change) {
    for (const auto& [name, node] : change) {
      if (node == none)
        names.erase(name);
      else
        names[name] = node;
    }
  }
  void change(std::size_t folder, Names names) {
    apply_to(nodes_[folder].names, names);
    pending_.push_back({folder, std::move(names)});
  }
  void sync(std::size_t node) {
    nodes_[node].durable_bytes = nodes_[node].content.size();
    std::erase_if(pending_, [&](const Change& change) {
      if (change.folder == node) apply_to(nodes_[node].durable_names, change.names);
      return change.folder == node;
    });
  }
  void add(State& state, const std::string& path, std::size_t folder,
           const std::vector<Names>& names, Unsynced rest) const {
    state[path] = "";
    for (const auto& [name, number] : names[folder]) {
      const Node& node = nodes_[number];
      if (node.is_folder) {
        add(state, path + name + "/", number, names, rest);
        continue;
      }
      std::string content = node.content.substr(0, node.durable_bytes);
      const std::size_t more = node.content.size() - node.durable_bytes;
      if (rest == Unsynced::half) content += node.content.substr(node.durable_bytes, more / 2);
      if (rest == Unsynced::zeros) content += std::string(more, '\0');
      if (rest == Unsynced::written) content = node.content;
      state[path + name] = content;
    }
  }

  std::string root_;
  std::vector<Node> nodes_;  // the first is the root
  std::vector<Change> pending_;
};

std::string text_of(std::uint64_t step) {
  return std::string(40, static_cast<char>('a' + step % 26));
}
void save(CheckpointDirectory& to, std::uint64_t step) {
  const std::string text = text_of(step);
  const auto bytes = std::as_bytes(std::span(text));
  const std::vector<CheckpointFile> files{{"weights.safetensors", {bytes}},
                                          {"optimizer.safetensors", {bytes.first(20)}}};
  to.write(step, files, "{\n  \"steps\": " + std::to_string(step));
}

/// The newest checkpoint that loads. Its content must be that of its step.
std::optional<std::uint64_t> newest(const std::string& path) {
  const CheckpointDirectory from(path);
  auto steps = from.steps();
  for (; !steps.empty(); steps.pop_back()) {
    try {
      const auto entry = from.read(steps.back());
      const auto& bytes = entry.files.at("weights.safetensors");
      CHECK(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) ==
            text_of(steps.back()));
      return steps.back();
    } catch (const ls::FileError&) {  // refused
    }
  }
  return std::nullopt;
}

/// Records `work` in a directory that holds a checkpoint of step 1. After a power failure at any
/// moment the newest checkpoint that loads must be of step `least` or later, and after the end of
/// `work` of step `last`.
void survives(const std::function<void(CheckpointDirectory&)>& work, std::uint64_t least,
              std::uint64_t last) {
  const testing::Folder folder;
  const std::string path = folder / "run";
  operations.clear();
  recording = true;
  {
    CheckpointDirectory to(path);
    to.open_for_writing();
    save(to, 1);
  }
  const std::size_t first = operations.size();
  {
    CheckpointDirectory to(path);
    to.open_for_writing();
    work(to);
  }
  recording = false;
  REQUIRE(operations.size() > first);

  Disk disk(folder.path());
  std::set<Disk::State> seen;
  const std::string copy = folder / "copy";
  for (std::size_t i = 0; i < operations.size(); ++i) {
    disk.apply(operations[i]);
    if (i + 1 < first) continue;
    const bool ended = i + 1 == operations.size();
    CAPTURE(i, operations[i].kind, operations[i].path);
    disk.for_each_state([&](const Disk::State& state) {
      if (!ended && !seen.insert(state).second) return;
      fs::remove_all(copy);
      for (const auto& [name, content] : state) {
        const std::string there = copy + name;
        if (name.ends_with('/'))
          fs::create_directories(there);
        else
          std::ofstream(there, std::ios::binary) << content;
      }
      const auto found = newest(copy + "/run");
      REQUIRE(found);
      CHECK(*found >= least);
      if (ended) CHECK(*found == last);
    });
  }
  CHECK(seen.size() > 20);
}

}  // namespace

TEST_CASE("a power failure at any moment of a save leaves a checkpoint that loads") {
  survives([](CheckpointDirectory& to) { save(to, 2); }, 1, 2);
}

TEST_CASE("a power failure while checkpoints are replaced and removed leaves the newest one") {
  survives([](CheckpointDirectory& to) { save(to, 1); }, 1, 1);
  survives(
      [](CheckpointDirectory& to) {
        save(to, 2);
        to.remove(1);
      },
      1, 2);
}
