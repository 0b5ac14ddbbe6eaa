/// \file
/// The connections of one process to all others, over Gloo. Invariants: after the constructor each
/// end of each connection has shown that it belongs to the run; the constructor ends soon after its
/// limit, whatever the others do, and at once when the store hears that one of them is lost.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/gloo_exec.hpp"
#include "lockstep/collectives/gloo_links.hpp"
#include "lockstep/collectives/gloo_loop.hpp"
#include "lockstep/collectives/gloo_ports.hpp"
#include "lockstep/collectives/gloo_proof.hpp"
#include "lockstep/collectives/gloo_sigpipe.hpp"
#include "lockstep/collectives/gloo_store.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/threads.hpp"

namespace lockstep {

/// A mesh could not be formed; nothing of it is left. Another one, with the next number, may
/// succeed: while Gloo connects, it takes whoever comes for the peer.
class GlooMeshError : public CollectiveError {
 public:
  [[gnu::noinline, gnu::cold]] GlooMeshError(std::size_t rank, std::size_t peer,
                                             std::string_view fact)
      : CollectiveError(peer, {"gloo mesh: replica ", rank, " has no connection to replica ", peer,
                               ": ", fact}) {}
};

/// What a process needs to know to take its place in a mesh.
struct GlooMeshOptions {
  std::size_t rank = 0, size = 1;
  std::string address = "127.0.0.1";  ///< of this process, as the others reach it
  std::string name = "gloo";  ///< before all keys in the store; one for each group of meshes
  std::uint64_t number = 0;   ///< of this attempt
  std::string run{};          ///< the job; equal in all processes
  std::string key{};          ///< the job's secret, if it has one
  /// At which this process listens, size - 1 of them at a time.
  detail::GlooPorts ports{};
  std::chrono::milliseconds limit = std::chrono::seconds(3);
  /// A connection over which nothing is acknowledged for this long is dead.
  std::chrono::milliseconds silence = std::chrono::seconds(2);
};

namespace detail {

/// Tags of Gloo's messages: a channel, what the message is, and the call it belongs to.
constexpr std::uint64_t gloo_slot(std::size_t channel, std::uint64_t kind, std::uint64_t call = 0) {
  return std::uint64_t{channel} << 56 | kind << 48 | (call & 0xffff'ffff'ffffu);
}
inline constexpr std::size_t gloo_mesh_channel = 255;

/// What Gloo says, without the place in its source: "[pair.cc:589] Read error ...".
inline std::string gloo_fact(const std::exception& e) {
  const std::string_view what = e.what();
  const std::size_t end = what.starts_with('[') ? what.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? what : what.substr(end + 2));
}

class GlooPairs {
 public:
  using Clock = std::chrono::steady_clock;
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  /// \throws GlooMeshError, UsageError, and what the store throws.
  GlooPairs(const GlooMeshOptions& options, GlooStore& store)
      : options_(options), deadline_(Clock::now() + options.limit) {
    if (options.size < 1 || options.rank >= options.size)
      throw UsageError({"gloo mesh: no rank ", options.rank, " among ", options.size, " replicas"});
    if (options.limit < std::chrono::milliseconds(10))
      throw UsageError({"gloo mesh: a limit of ", options.limit.count(),
                        " ms; connections need at least 10 ms"});
    if (options.size == 1) return;
    if (options.ports.given() && options.ports.size() < options.size - 1)
      throw UsageError({"gloo mesh: the ports ", options.ports.first, " to ", options.ports.last,
                        " are too few: of ", options.size, " workers each listens at ",
                        options.size - 1, "; give LOCKSTEP_DATA_PORTS a wider range"});
    const SigpipeBlocked blocked;  // Gloo's thread is made here, too
    listen();
    {
      const Interrupter interrupter(*this, store);
      connect(store);
      prove();
    }
    close_on_exec(places_);
    links_ = GlooLinks(ends_, options_.silence);
  }

  /// Over memory that must outlive the buffer.
  Buffer buffer(const void* p, std::size_t bytes) {
    return context_->createUnboundBuffer(const_cast<void*>(p), bytes);
  }

  /// By which the messages of a mesh that stands are given to Gloo.
  GlooLoop& loop() { return *loop_; }

  /// For one thread.
  GlooLinks& links() { return links_; }

  /// What was sent still arrives. Nobody may use the connections meanwhile or later.
  void close() {
    for_each_peer([&](std::size_t r) { context_->getPair(static_cast<int>(r)).reset(); });
  }

  /// f(rank) for all others, the next one first, so that not all begin with the same.
  template <class F>
  void for_each_peer(const F& f) const {
    for (std::size_t i = 1; i < options_.size; ++i) f((options_.rank + i) % options_.size);
  }

 private:
  [[noreturn, gnu::noinline, gnu::cold]] void fail(std::size_t peer, std::string_view fact) const {
    throw GlooMeshError(options_.rank, peer, fact);
  }

  /// Asked here, since Gloo would look names up without a deadline and tell no reason.
  void check_address() const {
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(options_.address.c_str(), nullptr, &hints, &found) != 0)
      throw UsageError(
          {"gloo mesh: ", options_.address, " is no address; give numbers, such as 10.0.0.7"});
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, &freeaddrinfo);
    const int probe = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_ours = probe >= 0 && bind(probe, address->ai_addr, address->ai_addrlen) == 0;
    const int error = errno;
    if (probe >= 0) ::close(probe);
    if (!is_ours)
      throw UsageError({"gloo mesh: cannot listen at ", options_.address, " (",
                        std::generic_category().message(error),
                        "); give an address of this machine"});
  }

  void listen() {
    check_address();
    const gloo::transport::tcp::attr attr(options_.address.c_str());
    try {
      const auto device = std::make_shared<GlooPortDevice>(CreateDeviceAttr(attr));
      context_ =
          device->createContext(static_cast<int>(options_.rank), static_cast<int>(options_.size));
      context_->setTimeout(options_.limit / 5);  // Gloo waits five times as long for a connection
      std::uint32_t port = options_.ports.first;
      for (std::size_t r = 0; r < options_.size; ++r)
        if (r != options_.rank) make_pair(*device, static_cast<int>(r), port);
      loop_.emplace(device);
    } catch (const Error&) {
      throw;
    } catch (const std::system_error& e) {  // Gloo reports other failures by its own exceptions
      refuse_thread("gloo mesh", e);
    } catch (const std::exception& e) {
      throw Error({"gloo mesh: Gloo cannot listen at ", options_.address, " (", gloo_fact(e),
                   "); check the limit of open files (ulimit -n)"});
    }
  }

  /// A connection that listens for its peer, at the first free port from `port` on.
  void make_pair(GlooPortDevice& device, int rank, std::uint32_t& port) {
    if (!options_.ports.given()) {
      context_->createPair(rank);
      return;
    }
    std::string fact = "none is left";
    while (port <= options_.ports.last) {
      device.listen_at(static_cast<std::uint16_t>(port++));
      try {
        context_->createPair(rank);
        return;
      } catch (const std::exception& e) {
        fact = gloo_fact(e);
      }
    }
    throw UsageError({"gloo mesh: not enough of the ports ", options_.ports.first, " to ",
                      options_.ports.last, " are free at ", options_.address, " (", fact,
                      "); give LOCKSTEP_DATA_PORTS a wider range"});
  }

  /// Where the connection to `rank` has one of its ends.
  void note_place(const std::vector<char>& address, std::size_t rank, bool is_mine) {
    places_.push_back(gloo::transport::tcp::Address(address).getSockaddr());
    ends_.push_back({places_.back(), rank, is_mine});
  }

  std::string key_of(std::size_t rank) const {
    return text({options_.name, "/", options_.number, "/address/", rank});
  }

  /// Ends the waits of the constructor when a process of the job is lost: Gloo's connections know
  /// only their own deadline. In a separate thread, since closing waits for Gloo's.
  class Interrupter {
   public:
    Interrupter(GlooPairs& pairs, GlooStore& store)
        : pairs_(pairs), store_(store), thread_(start_thread("gloo mesh", [this] { run(); })) {
      store_.on_loss([this] { notify(lost_); });
    }
    Interrupter(const Interrupter&) = delete;
    Interrupter& operator=(const Interrupter&) = delete;
    ~Interrupter() {
      store_.on_loss({});
      notify(ends_);
      thread_.join();
    }

   private:
    void notify(bool& what) {
      {
        const std::scoped_lock lock(mutex_);
        what = true;
      }
      changed_.notify_all();
    }
    void run() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return lost_ || ends_; });
      if (lost_ && !ends_) pairs_.interrupt();
    }

    GlooPairs& pairs_;
    GlooStore& store_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool lost_ = false, ends_ = false;
    std::thread thread_;  // last: it uses the above
  };

  void interrupt() {
    interrupted_ = true;
    for_each_peer([&](std::size_t r) { context_->getPair(static_cast<int>(r))->close(); });
    const std::scoped_lock lock(waits_mutex_);
    for (auto* const buffer : waits_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }
  void check_interrupted(std::size_t peer) const {
    if (interrupted_) fail(peer, "a process of the job was lost");
  }

  /// All addresses at which a process listens, one for each other rank, in one value.
  void connect(GlooStore& store) {
    std::string mine;
    std::size_t bytes = 0;
    for (std::size_t r = 0; r < options_.size; ++r) {
      if (r == options_.rank) continue;
      const std::vector<char> address = context_->getPair(static_cast<int>(r))->address().bytes();
      bytes = address.size();
      note_place(address, r, true);
      mine.append(address.begin(), address.end());
    }
    close_on_exec(places_);  // those that listen
    store.set(key_of(options_.rank), mine);
    // In the order of ranks: then at each moment two are ready for each other.
    for (std::size_t r = 0; r < options_.size; ++r) {
      if (r == options_.rank) continue;
      const std::optional<std::string> theirs = store.get(key_of(r), deadline_);
      if (!theirs) fail(r, "it published no address in time");
      if (theirs->size() != mine.size()) fail(r, "its addresses are not of this kind of mesh");
      const std::size_t seat = options_.rank - (options_.rank > r ? 1 : 0);
      const auto first = theirs->begin() + static_cast<std::ptrdiff_t>(seat * bytes);
      const std::vector<char> address(first, first + static_cast<std::ptrdiff_t>(bytes));
      try {
        note_place(address, r, false);
        check_interrupted(r);
        context_->getPair(static_cast<int>(r))->connect(address);
        check_interrupted(r);
      } catch (const Error&) {
        throw;
      } catch (const std::exception& e) {
        fail(r, gloo_fact(e));
      }
    }
  }

  struct Peer {
    GlooHello mine, theirs;
    GlooProof my_proof{}, their_proof{};
    Buffer out, in, proof_out, proof_in;
  };

  std::chrono::milliseconds left() const {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()),
                    std::chrono::milliseconds(1));
  }

  /// The buffers that `prove` waits for.
  class Waits {
   public:
    explicit Waits(GlooPairs& pairs) : pairs_(pairs) {}
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;
    ~Waits() {
      const std::scoped_lock lock(pairs_.waits_mutex_);
      pairs_.waits_.clear();
    }
    void add(std::initializer_list<gloo::transport::UnboundBuffer*> buffers) const {
      const std::scoped_lock lock(pairs_.waits_mutex_);
      pairs_.waits_.insert(pairs_.waits_.end(), buffers);
    }

   private:
    GlooPairs& pairs_;
  };

  void prove() {
    constexpr std::uint64_t hello = gloo_slot(gloo_mesh_channel, 1),
                            proof = gloo_slot(gloo_mesh_channel, 2);
    std::vector<Peer> peers(options_.size);
    const auto with_peer = [&](const auto& f) {
      for_each_peer([&](std::size_t r) {
        try {
          check_interrupted(r);
          f(r, peers[r]);
          check_interrupted(r);
        } catch (const Error&) {
          throw;
        } catch (const std::exception& e) {
          fail(r, text({"who is there does not show that it belongs to the run (", gloo_fact(e),
                        ")"}));
        }
      });
    };
    const Waits waits(*this);  // before the buffers of `peers` go
    with_peer([&](std::size_t r, Peer& peer) {
      const int rank = static_cast<int>(r);
      peer.mine = gloo_hello(options_.number, options_.rank, r);
      peer.out = buffer(&peer.mine, sizeof peer.mine);
      peer.in = buffer(&peer.theirs, sizeof peer.theirs);
      peer.proof_out = buffer(&peer.my_proof, sizeof peer.my_proof);
      peer.proof_in = buffer(&peer.their_proof, sizeof peer.their_proof);
      waits.add({peer.out.get(), peer.in.get(), peer.proof_out.get(), peer.proof_in.get()});
      peer.in->recv(rank, hello);
      peer.proof_in->recv(rank, proof);
      peer.out->send(rank, hello);
    });
    with_peer([&](std::size_t r, Peer& peer) {
      peer.in->waitRecv(left());
      if (!peer.theirs.answers(peer.mine)) fail(r, "a stranger is there");
      peer.my_proof = gloo_proof(options_.key, options_.run, peer.mine, peer.theirs);
      peer.proof_out->send(static_cast<int>(r), proof);
    });
    with_peer([&](std::size_t r, Peer& peer) {
      peer.proof_in->waitRecv(left());
      if (!same_proof(peer.their_proof,
                      gloo_proof(options_.key, options_.run, peer.theirs, peer.mine)))
        fail(r, "it belongs to another run, or has another secret");
      peer.out->waitSend(left());
      peer.proof_out->waitSend(left());
    });
  }

  GlooMeshOptions options_;
  Clock::time_point deadline_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::optional<GlooLoop> loop_;
  std::vector<sockaddr_storage> places_;
  std::atomic<bool> interrupted_{false};
  std::mutex waits_mutex_;
  std::vector<gloo::transport::UnboundBuffer*> waits_;
  std::vector<GlooLinks::Place> ends_;
  GlooLinks links_;
};

}  // namespace detail
}  // namespace lockstep
