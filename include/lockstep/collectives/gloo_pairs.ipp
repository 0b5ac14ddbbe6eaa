#pragma once

#include "lockstep/collectives/gloo_pairs.hpp"

#include <gloo/transport/tcp/address.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lockstep/collectives/gloo_exec.hpp"
#include "lockstep/collectives/gloo_sigpipe.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/threads.hpp"

namespace lockstep {

GlooMeshError::GlooMeshError(std::size_t rank, std::size_t peer, std::string_view fact)
    : CollectiveError(peer, "gloo mesh: replica {} has no connection to replica {}: {}", rank, peer,
                      fact) {}

namespace detail {

std::string gloo_fact(const std::exception& e) {
  const std::string_view what = e.what();
  const std::size_t end = what.starts_with('[') ? what.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? what : what.substr(end + 2));
}

/// Ends the constructor's waits when a process of the job is lost; Gloo's connections know only
/// their own deadline. Uses a separate thread, because closing waits for Gloo's thread and the
/// store's callback must not block.
class GlooPairs::Interrupter {
 public:
  Interrupter(GlooPairs& pairs, GlooStore& store)
      : pairs_(pairs), store_(store), thread_(start_thread("gloo mesh", [this] { run(); })) {
    store_.on_loss([this] { notify(lost_); });
  }
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;
  ~Interrupter() {
    store_.on_loss({});
    notify(stopping_);
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
    changed_.wait(lock, [this] { return lost_ || stopping_; });
    if (lost_ && !stopping_) pairs_.interrupt();
  }

  GlooPairs& pairs_;
  GlooStore& store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool lost_ = false, stopping_ = false;
  std::thread thread_;  // last member: it uses all others
};

/// Registers the buffers that `authenticate` waits for, so that `interrupt` can abort the waits.
class GlooPairs::Waits {
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

struct GlooPairs::Peer {
  GlooHello mine, theirs;
  GlooProof my_proof{}, their_proof{};
  Buffer out, in, proof_out, proof_in;
};

GlooPairs::GlooPairs(const GlooMeshOptions& options, GlooStore& store)
    : options_(options), deadline_(Clock::now() + options.limit) {
  if (options.size < 1 || options.rank >= options.size)
    throw UsageError("gloo mesh: rank is {}; it must be below the mesh's size, {}", options.rank,
                     options.size);
  if (options.limit < std::chrono::milliseconds(10))
    throw UsageError("gloo mesh: limit is {} ms; connecting needs at least 10 ms",
                     options.limit.count());
  if (options.size == 1) return;
  if (options.ports.given() && options.ports.size() < options.size - 1)
    throw UsageError(
        "gloo mesh: the ports {} to {} are too few for {} workers, each of which listens on {}; "
        "give LOCKSTEP_DATA_PORTS a wider range",
        options.ports.first, options.ports.last, options.size, options.size - 1);
  const SigpipeBlocked blocked;
  {
    const SignalsBlocked all;  // Gloo's thread is started here and inherits the mask
    listen();
  }
  {
    const Interrupter interrupter(*this, store);
    connect(store);
    authenticate();
  }
  set_cloexec(addresses_);
  links_ = GlooLinks(endpoints_, options_.silence);
}

GlooPairs::Buffer GlooPairs::buffer(const void* p, std::size_t bytes) {
  return context_->createUnboundBuffer(const_cast<void*>(p), bytes);
}

void GlooPairs::close() {
  for_each_peer([&](std::size_t r) { context_->getPair(static_cast<int>(r)).reset(); });
}

void GlooPairs::fail(std::size_t peer, std::string_view fact) const {
  throw GlooMeshError(options_.rank, peer, fact);
}

void GlooPairs::check_address() const {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(options_.address.c_str(), nullptr, &hints, &found) != 0)
    throw UsageError("gloo mesh: '{}' is not an IP address; use a numeric one such as 10.0.0.7",
                     options_.address);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, &freeaddrinfo);
  const int probe = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is_ours = probe >= 0 && bind(probe, address->ai_addr, address->ai_addrlen) == 0;
  const int error = errno;
  if (probe >= 0) ::close(probe);
  if (!is_ours)
    throw UsageError("gloo mesh: cannot listen on {} ({}); give an address of this machine",
                     options_.address, std::generic_category().message(error));
}

void GlooPairs::listen() {
  check_address();
  const gloo::transport::tcp::attr attr(options_.address.c_str());
  try {
    const auto device = std::make_shared<GlooPortDevice>(CreateDeviceAttr(attr));
    context_ =
        device->createContext(static_cast<int>(options_.rank), static_cast<int>(options_.size));
    context_->setTimeout(options_.limit / 5);  // Gloo waits five timeouts for a connection
    std::uint32_t port = options_.ports.first;
    for (std::size_t r = 0; r < options_.size; ++r)
      if (r != options_.rank) make_pair(*device, static_cast<int>(r), port);
    loop_.emplace(device);
  } catch (const Error&) {
    throw;
  } catch (const std::system_error& e) {  // Gloo reports other failures by its own exceptions
    throw_thread_error("gloo mesh", e);
  } catch (const std::exception& e) {
    throw Error(
        "gloo mesh: Gloo cannot listen on {} ({}); check the limit of open files (ulimit -n)",
        options_.address, gloo_fact(e));
  }
}

void GlooPairs::make_pair(GlooPortDevice& device, int rank, std::uint32_t& port) {
  if (!options_.ports.given()) {
    context_->createPair(rank);
    return;
  }
  std::string fact = "no port is left";
  while (port <= options_.ports.last) {
    device.listen_at(static_cast<std::uint16_t>(port++));
    try {
      context_->createPair(rank);
      return;
    } catch (const std::exception& e) {
      fact = gloo_fact(e);
    }
  }
  throw UsageError(
      "gloo mesh: too few of the ports {} to {} are free on {} ({}); give LOCKSTEP_DATA_PORTS a "
      "wider range",
      options_.ports.first, options_.ports.last, options_.address, fact);
}

void GlooPairs::add_endpoint(const std::vector<char>& address, std::size_t rank, bool is_mine) {
  addresses_.push_back(gloo::transport::tcp::Address(address).getSockaddr());
  endpoints_.push_back({addresses_.back(), rank, is_mine});
}

std::string GlooPairs::key_of(std::size_t rank) const {
  return fmt::format("{}/{}/address/{}", options_.name, options_.number, rank);
}

void GlooPairs::interrupt() {
  interrupted_ = true;
  for_each_peer([&](std::size_t r) { context_->getPair(static_cast<int>(r))->close(); });
  const std::scoped_lock lock(waits_mutex_);
  for (auto* const buffer : waits_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

void GlooPairs::check_interrupted(std::size_t peer) const {
  if (interrupted_) fail(peer, "a process of the job was lost");
}

void GlooPairs::connect(GlooStore& store) {
  std::string mine;
  std::size_t bytes = 0;
  for (std::size_t r = 0; r < options_.size; ++r) {
    if (r == options_.rank) continue;
    const std::vector<char> address = context_->getPair(static_cast<int>(r))->address().bytes();
    bytes = address.size();
    add_endpoint(address, r, true);
    mine.append(address.begin(), address.end());
  }
  set_cloexec(addresses_);  // the listening sockets
  store.set(key_of(options_.rank), mine);
  // All processes connect in the order of ranks: at each moment some pair is ready for each other.
  for (std::size_t r = 0; r < options_.size; ++r) {
    if (r == options_.rank) continue;
    const std::optional<std::string> theirs = store.get(key_of(r), deadline_);
    if (!theirs) fail(r, "it published no address in time");
    if (theirs->size() != mine.size()) fail(r, "its list of addresses has another size");
    const std::size_t index = options_.rank - (options_.rank > r ? 1 : 0);
    const auto first = theirs->begin() + static_cast<std::ptrdiff_t>(index * bytes);
    const std::vector<char> address(first, first + static_cast<std::ptrdiff_t>(bytes));
    try {
      add_endpoint(address, r, false);
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

std::chrono::milliseconds GlooPairs::time_left() const {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()),
                  std::chrono::milliseconds(1));
}

void GlooPairs::authenticate() {
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
        fail(r, fmt::format("the process there did not prove that it belongs to the run ({})",
                            gloo_fact(e)));
      }
    });
  };
  const Waits waits(*this);  // destroyed before the buffers of `peers`
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
    peer.in->waitRecv(time_left());
    if (!peer.theirs.answers(peer.mine)) fail(r, "the process there is not part of the mesh");
    peer.my_proof = gloo_proof(options_.key, options_.run, peer.mine, peer.theirs);
    peer.proof_out->send(static_cast<int>(r), proof);
  });
  with_peer([&](std::size_t r, Peer& peer) {
    peer.proof_in->waitRecv(time_left());
    if (!same_proof(peer.their_proof,
                    gloo_proof(options_.key, options_.run, peer.theirs, peer.mine)))
      fail(r, "it belongs to another run, or has another secret");
    peer.out->waitSend(time_left());
    peer.proof_out->waitSend(time_left());
  });
}

}  // namespace detail

}  // namespace lockstep
