/// \file
/// What a replica asks of its GPU, one call after the other, and CUDA graphs made of it without a
/// word from the caller. Invariants: the calls take effect in their order; between two `flush` they
/// are one segment. A segment that came before is not run call by call: its calls are compared with
/// those of the last time, numbers among their arguments are taken over, and `flush` launches all
/// of it as one graph. A segment that turns out to be another one is run as it stands, and one that
/// the driver takes for no graph is run call by call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/devices/cuda/graph.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Blocks and threads of a launch.
struct Grid {
  std::array<unsigned, 3> blocks{1, 1, 1}, threads{1, 1, 1};
  bool operator==(const Grid&) const = default;

  /// For a loop over `n` elements, `for (i64 i = INDEX; i < n; i += STRIDE)`.
  static Grid over(std::size_t n, unsigned threads = 256) {
    const std::size_t blocks = (n + threads - 1) / threads;
    return {{static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, most_blocks)), 1, 1},
            {threads, 1, 1}};
  }
  static constexpr std::size_t most_blocks = 1 << 16;
};

/// The arguments of a kernel, by value.
class Arguments {
 public:
  static constexpr std::size_t room = 240, most = 24;

  template <class... Ts>
  explicit Arguments(const Ts&... values) {
    static_assert(sizeof...(Ts) <= most && (std::is_trivially_copyable_v<Ts> && ...));
    (add(values), ...);
  }
  Arguments() = default;

  /// As cuLaunchKernel wants them; valid while this object lives.
  std::array<void*, most> pointers() {
    std::array<void*, most> all{};
    for (std::size_t i = 0; i < count_; ++i) all[i] = bytes_.data() + offset_[i];
    return all;
  }
  bool operator==(const Arguments& other) const {
    return size_ == other.size_ && std::memcmp(bytes_.data(), other.bytes_.data(), size_) == 0;
  }

 private:
  template <class T>
  void add(const T& value) {
    const std::size_t at = (size_ + alignof(T) - 1) / alignof(T) * alignof(T);
    if (at + sizeof(T) > room) throw DeviceError("cuda: a kernel has too many arguments");
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    offset_[count_++] = static_cast<std::uint8_t>(at);
    size_ = at + sizeof(T);
  }

  alignas(16) std::array<std::byte, room> bytes_{};  // gaps between arguments stay zero
  std::array<std::uint8_t, most> offset_{};
  std::size_t count_ = 0, size_ = 0;
};

/// One call.
struct Command {
  enum class Kind { kernel, copy_in, copy_out, copy, clear, call, part };
  Kind kind = Kind::call;
  // A kernel's.
  CUfunction function = nullptr;
  Grid grid{};
  Arguments arguments{};
  // A copy's: to, from, bytes. A call's: whatever tells it from others.
  std::array<std::uint64_t, 8> words{};
  std::function<void(CUstream)> run{};
  // A part's; its address and what follows it are words.
  std::shared_ptr<const GraphPart> part{};

  /// The same but for the arguments of a kernel.
  bool is_like(const Command& other) const {
    return kind == other.kind && function == other.function && grid == other.grid &&
           words == other.words;
  }

  void execute(CUstream stream) {
    switch (kind) {
      case Kind::kernel: {
        auto pointers = arguments.pointers();
        check(driver().cuLaunchKernel(function, grid.blocks[0], grid.blocks[1], grid.blocks[2],
                                      grid.threads[0], grid.threads[1], grid.threads[2], 0, stream,
                                      pointers.data(), nullptr),
              "starting a kernel");
        return;
      }
      case Kind::copy_in:
        check(driver().cuMemcpyHtoDAsync(words[0], reinterpret_cast<const void*>(words[1]),
                                         words[2], stream),
              "copying to the GPU");
        return;
      case Kind::copy_out:
        check(driver().cuMemcpyDtoHAsync(reinterpret_cast<void*>(words[0]), words[1], words[2],
                                         stream),
              "copying from the GPU");
        return;
      case Kind::copy:
        check(driver().cuMemcpyDtoDAsync(words[0], words[1], words[2], stream),
              "copying on the GPU");
        return;
      case Kind::clear:
        check(driver().cuMemsetD8Async(words[0], 0, words[1], stream), "clearing memory");
        return;
      case Kind::call:
        run(stream);
        return;
      case Kind::part:
        part->launch(stream);
        return;
    }
  }
};

/// The calls of one stream. Used by one thread at a time, with the GPU's context current.
class Commands {
 public:
  explicit Commands(CUstream stream, bool graphs = true) : stream_(stream), graphs_(graphs) {}
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  template <class... Ts>
  void launch(CUfunction function, const Grid& grid, const Ts&... arguments) {
    Command c;
    c.kind = Command::Kind::kernel;
    c.function = function;
    c.grid = grid;
    c.arguments = Arguments(arguments...);
    say(std::move(c));
  }
  /// `from` is pinned, and keeps its content until the next `wait`.
  void copy_in(CUdeviceptr to, const void* from, std::size_t bytes) {
    if (bytes > 0) say(of(Command::Kind::copy_in, {to, address(from), bytes}));
  }
  /// `to` is pinned, and has the bytes after the next `wait`.
  void copy_out(void* to, CUdeviceptr from, std::size_t bytes) {
    if (bytes > 0) say(of(Command::Kind::copy_out, {address(to), from, bytes}));
  }
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    if (bytes > 0) say(of(Command::Kind::copy, {to, from, bytes}));
  }
  void clear(CUdeviceptr p, std::size_t bytes) {
    if (bytes > 0) say(of(Command::Kind::clear, {p, bytes}));
  }
  /// `run(stream)`: a library's call, made of nothing that is not in `words`: two calls with the
  /// same words do the same. It must be one that a graph can record.
  template <class F>
  void call(const std::array<std::uint64_t, 8>& words, F&& run) {
    Command c;
    c.words = words;
    if (follows(c)) return;
    c.run = std::forward<F>(run);  // which takes memory
    run_now(std::move(c));
  }
  /// Comes after all that was said, and after the part before it. In a graph, what is said
  /// afterwards does not wait for it until a part `joins`: that one, and all before it, are waited
  /// for.
  void part(const std::shared_ptr<const GraphPart>& what, bool joins) {
    Command c = of(Command::Kind::part, {address(what.get()), std::uint64_t{joins}});
    c.part = what;
    say(std::move(c));
  }

  /// Hands all that was said to the GPU.
  void flush() {
    // Whatever happens: what was handed over, or failed, is not handed over again.
    struct Ending {
      Commands* commands;
      ~Ending() { commands->begin_anew(); }
    } ending{this};
    if (walking_ != nullptr) {
      if (position_ == walking_->commands.size() || change_to_tape_of_length(position_)) {
        walking_->launch(stream_, graphs_);
        walking_->last_use = ++uses_;
      } else {
        leave_tape();
      }
    }
    if (said_.size() >= least_commands) remember();
  }
  /// Flushes, and returns when the GPU has done it all.
  void wait() {
    flush();
    check(driver().cuStreamSynchronize(stream_), "waiting for the GPU");
  }
  /// After an error: forgets what was said and not handed over.
  void abandon() noexcept { begin_anew(); }
  /// Ends all graphs that have parts: what parts were made of ends.
  void forget_parts() noexcept {
    std::erase_if(tapes_, [&](const auto& tape) {
      if (!tape->has_parts()) return false;
      if (walking_ == tape.get()) abandon();
      return true;
    });
    if (std::any_of(said_.begin(), said_.end(), is_part)) said_.clear();
  }

  /// While it lives, each call is made at once and none is remembered: for what is done only once,
  /// such as a measurement.
  class AtOnce {
   public:
    explicit AtOnce(Commands& commands) : commands_(commands) {
      commands.flush();
      commands.at_once_ = true;
    }
    ~AtOnce() { commands_.at_once_ = false; }
    AtOnce(const AtOnce&) = delete;
    AtOnce& operator=(const AtOnce&) = delete;

   private:
    Commands& commands_;
  };

  CUstream stream() const { return stream_; }
  /// Segments that are known, and how many of them are graphs.
  std::size_t tapes() const { return tapes_.size(); }
  std::size_t graphs() const {
    return static_cast<std::size_t>(
        std::count_if(tapes_.begin(), tapes_.end(), [](const auto& t) { return t->has_graph(); }));
  }

  /// Fewer calls are not worth a graph; more tapes than these are not kept.
  static constexpr std::size_t least_commands = 3, most_tapes = 64;
  /// Whether it was said why a segment cannot be a graph: once in a process.
  static inline std::atomic<bool> told{false};

 private:
  /// A segment: its calls with the arguments of the last time.
  class Tape {
   public:
    explicit Tape(std::vector<Command> c) : commands(std::move(c)), stale_(commands.size()) {}

    std::vector<Command> commands;
    std::uint64_t last_use = 0;

    bool has_graph() const { return static_cast<bool>(ready_); }
    bool has_parts() const { return std::any_of(commands.begin(), commands.end(), is_part); }
    void take(std::size_t i, const Command& c) {
      if (c.kind != Command::Kind::kernel || commands[i].arguments == c.arguments) return;
      commands[i].arguments = c.arguments;
      stale_[i] = true;
    }
    void run(std::size_t count, CUstream stream) {
      for (std::size_t i = 0; i < count; ++i) commands[i].execute(stream);
    }
    void launch(CUstream stream, bool graphs) {
      if (!graphs || cannot_be_graph_ || !launch_graph(stream)) run(commands.size(), stream);
    }

   private:
    /// False: what cannot be a graph is run call by call from then on. Nothing of it has run, and
    /// an error that is not the graph's shows itself there.
    bool launch_graph(CUstream stream) {
      try {
        if (ready_)
          refresh();
        else
          record(stream);
        ready_.launch(stream);
        return true;
      } catch (const DeviceError& error) {
        give_up_graph(error.what());
        return false;
      }
    }
    [[gnu::cold]] void give_up_graph(const char* why) {
      cannot_be_graph_ = true;
      ready_ = ReadyGraph();
      graph_ = Graph();
      if (!told.exchange(true))
        log(LogLevel::warning, text({"cuda: ", commands.size(),
                                     " calls cannot be launched as one graph, and are made one by "
                                     "one, which is slower: ",
                                     why}));
    }
    [[gnu::cold]] void record(CUstream stream) {
      const Undisturbed undisturbed;
      nodes_.assign(commands.size(), nullptr);
      CUgraphNode beside = nullptr;  // the last part, if nobody has waited for it
      Graph graph(stream, [&] {
        for (std::size_t i = 0; i < commands.size(); ++i) {
          if (is_part(commands[i])) {
            add_part(stream, commands[i], beside);
            continue;
          }
          commands[i].execute(stream);
          if (commands[i].kind == Command::Kind::kernel) nodes_[i] = last_node(stream);
        }
      });
      ready_ = ReadyGraph(graph);
      graph_ = std::move(graph);
      std::fill(stale_.begin(), stale_.end(), false);
    }
    static CUgraphNode last_node(CUstream stream) {
      const Recording now = Recording::of(stream);
      if (now.nodes.size() != 1)
        throw DeviceError("cuda: a recorded kernel has no node of its own");
      return now.nodes[0];
    }
    static void add_part(CUstream stream, const Command& c, CUgraphNode& beside) {
      const Recording now = Recording::of(stream);
      std::vector<CUgraphNode> before(now.nodes.begin(), now.nodes.end());
      if (beside != nullptr) before.push_back(beside);
      CUgraphNode node = nullptr;
      check(driver().cuGraphAddChildGraphNode(&node, now.graph, before.data(), before.size(),
                                              c.part->graph().get()),
            "adding a part to a graph");
      const bool joins = c.words[1] != 0;
      beside = joins ? nullptr : node;
      if (joins)
        check(driver().cuStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES),
              "adding a part to a graph");
    }
    void refresh() {
      for (std::size_t i = 0; i < commands.size(); ++i) {
        if (!stale_[i]) continue;
        Command& c = commands[i];
        auto pointers = c.arguments.pointers();
        CUDA_KERNEL_NODE_PARAMS params{};
        params.func = c.function;
        params.gridDimX = c.grid.blocks[0];
        params.gridDimY = c.grid.blocks[1];
        params.gridDimZ = c.grid.blocks[2];
        params.blockDimX = c.grid.threads[0];
        params.blockDimY = c.grid.threads[1];
        params.blockDimZ = c.grid.threads[2];
        params.kernelParams = pointers.data();
        check(driver().cuGraphExecKernelNodeSetParams(ready_.get(), nodes_[i], &params),
              "changing a graph's numbers");
        stale_[i] = false;
      }
    }

    bool cannot_be_graph_ = false;
    std::vector<bool> stale_;
    std::vector<CUgraphNode> nodes_;
    Graph graph_;
    ReadyGraph ready_;
  };

  static bool is_part(const Command& c) { return c.kind == Command::Kind::part; }
  static std::uint64_t address(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
  static Command of(Command::Kind kind, std::initializer_list<std::uint64_t> words) {
    Command c;
    c.kind = kind;
    std::copy(words.begin(), words.end(), c.words.begin());
    return c;
  }

  void say(Command c) {
    if (!follows(c)) run_now(std::move(c));
  }

  /// Whether the call is the next one of a known segment; it is left to `flush` then.
  bool follows(const Command& c) {
    if (at_once_) return false;
    if (position_ == 0 && said_.empty()) begin(c);
    if (walking_ == nullptr) return false;
    if ((position_ < walking_->commands.size() && c.is_like(walking_->commands[position_])) ||
        change_to_tape_with(c)) {
      walking_->take(position_++, c);
      return true;
    }
    leave_tape();
    return false;
  }
  void run_now(Command c) {
    c.execute(stream_);
    if (!at_once_) said_.push_back(std::move(c));
  }
  void begin_anew() noexcept {
    said_.clear();
    walking_ = nullptr;
    position_ = 0;
  }

  void begin(const Command& first) {
    for (const auto& tape : tapes_)
      if (first.is_like(tape->commands.front())) {
        walking_ = tape.get();
        return;
      }
  }

  /// Goes over to another tape that begins with all that was said, if there is one.
  template <class Fits>
  bool change_tape(const Fits& fits) {
    for (const auto& tape : tapes_) {
      if (tape.get() == walking_ || !fits(*tape)) continue;
      const bool same = std::equal(
          walking_->commands.begin(),
          walking_->commands.begin() + static_cast<std::ptrdiff_t>(position_),
          tape->commands.begin(), [](const Command& a, const Command& b) { return a.is_like(b); });
      if (!same) continue;
      for (std::size_t i = 0; i < position_; ++i) tape->take(i, walking_->commands[i]);
      walking_ = tape.get();
      return true;
    }
    return false;
  }
  bool change_to_tape_with(const Command& next) {
    return change_tape([&](const Tape& t) {
      return t.commands.size() > position_ && next.is_like(t.commands[position_]);
    });
  }
  bool change_to_tape_of_length(std::size_t length) {
    return change_tape([&](const Tape& t) { return t.commands.size() == length; });
  }

  /// What was only compared so far is run, and what follows is run at once.
  void leave_tape() {
    walking_->run(position_, stream_);
    said_.assign(walking_->commands.begin(),
                 walking_->commands.begin() + static_cast<std::ptrdiff_t>(position_));
    walking_ = nullptr;
  }

  [[gnu::cold]] void remember() {
    if (tapes_.size() == most_tapes)
      tapes_.erase(std::min_element(tapes_.begin(), tapes_.end(), [](const auto& a, const auto& b) {
        return a->last_use < b->last_use;
      }));
    tapes_.push_back(std::make_unique<Tape>(std::move(said_)));
    tapes_.back()->last_use = ++uses_;
  }

  CUstream stream_;
  bool graphs_, at_once_ = false;
  std::vector<std::unique_ptr<Tape>> tapes_;
  std::vector<Command> said_;  // run already
  Tape* walking_ = nullptr;
  std::uint64_t uses_ = 0;
  std::size_t position_ = 0;  // calls of walking_ that were said, and not run
};

}  // namespace lockstep::detail::cuda
