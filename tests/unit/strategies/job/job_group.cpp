/// \file
#include "lockstep/strategies/job/job_group.hpp"

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/hierarchical_group.hpp"
#include "unit/cluster/rendezvous/support.hpp"
#include "unit/collectives/tcp_places.hpp"

// The thread sanitizer wraps these functions itself and needs its wrappers.
#if defined(__SANITIZE_THREAD__)
#define LOCKSTEP_HEARS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOCKSTEP_HEARS 0
#endif
#endif
#ifndef LOCKSTEP_HEARS
#define LOCKSTEP_HEARS 1
#endif

namespace {

using namespace lockstep;
using namespace std::chrono_literals;
using lockstep::detail::JobGroup;
using rendezvous_test::Clock;

/// Records everything that this program writes to sockets during its lifetime.
class Ear {
 public:
  Ear() {
    heard_.clear();
    listens_ = true;
  }
  ~Ear() { listens_ = false; }
  /// Whether it contains any eight consecutive bytes of `secret`.
  bool has_heard(std::string_view secret) const {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i + 8 <= secret.size(); i += 8)
      if (heard_.find(secret.substr(i, 8)) != std::string::npos) return true;
    return false;
  }
  static void hear(const iovec* parts, std::size_t n) {
    if (!listens_) return;
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < n; ++i)
      heard_.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  }

 private:
  static inline std::atomic<bool> listens_{false};
  static inline std::mutex mutex_;
  static inline std::string heard_;
};

}  // namespace

#if LOCKSTEP_HEARS
extern "C" {
ssize_t write(int file, const void* p, std::size_t n) {
  static const auto next = reinterpret_cast<decltype(&write)>(dlsym(RTLD_NEXT, "write"));
  const iovec part{const_cast<void*>(p), n};
  Ear::hear(&part, 1);
  return next(file, p, n);
}
ssize_t writev(int file, const iovec* parts, int n) {
  static const auto next = reinterpret_cast<decltype(&writev)>(dlsym(RTLD_NEXT, "writev"));
  Ear::hear(parts, static_cast<std::size_t>(n));
  return next(file, parts, n);
}
ssize_t send(int file, const void* p, std::size_t n, int flags) {
  static const auto next = reinterpret_cast<decltype(&send)>(dlsym(RTLD_NEXT, "send"));
  const iovec part{const_cast<void*>(p), n};
  Ear::hear(&part, 1);
  return next(file, p, n, flags);
}
ssize_t sendmsg(int file, const msghdr* message, int flags) {
  static const auto next = reinterpret_cast<decltype(&sendmsg)>(dlsym(RTLD_NEXT, "sendmsg"));
  Ear::hear(message->msg_iov, message->msg_iovlen);
  return next(file, message, flags);
}
}
#endif

namespace {

/// 128 bytes, the size of NCCL's id, that occur in no other message.
std::string secret_of(unsigned char salt) {
  std::string secret(128, '\0');
  for (std::size_t i = 1; i < secret.size(); ++i)
    secret[i] = static_cast<char>(salt + 73 * i + i * i / 3);
  return secret;
}

/// A job whose ranks are threads of one process, each with a group.
struct Job {
  explicit Job(std::size_t size, bool has_secret = true, std::chrono::milliseconds timeout = 20s)
      : members(rendezvous_test::join_all(size, lines,
                                          [&](RendezvousOptions& o) {
                                            if (has_secret)
                                              o.secret = Secret(
                                                  "ssssssssssssssssssssssssssssssss0123456789");
                                          })),
        meshes(tcp_test::connect_meshes(size)),
        timeout_(timeout) {
    for (std::size_t r = 0; r < size; ++r)
      groups.push_back(
          std::make_unique<JobGroup>(data(r, 0), timeout_, members[r].get(), "secrets"));
  }
  ~Job() { rendezvous_test::leave_all(members); }
  lockstep::ProcessGroup data(std::size_t rank, std::size_t channel) const {
    return lockstep::ProcessGroup(
        TcpGroup(meshes[rank], {.channel = channel, .timeout = timeout_}));
  }

  /// Each rank calls share_secret with its own bytes. \return their bytes afterwards.
  std::vector<std::string> share(const std::vector<std::string>& own) {
    std::vector<std::string> all = own;
    errors = tcp_test::in_threads(own.size(), [&](std::size_t r) {
      groups[r]->share_secret(reinterpret_cast<std::byte*>(all[r].data()), all[r].size());
    });
    return all;
  }
  /// Runs f(rank) in a thread per rank, and keeps what each threw.
  template <class F>
  void in_each(const F& f) {
    errors = tcp_test::in_threads(groups.size(), f);
  }
  template <class E>
  std::string message_of(std::size_t rank) {
    return rendezvous_test::sentence<E>([&] {
      if (errors[rank]) std::rethrow_exception(errors[rank]);
    });
  }

  const rendezvous_test::Deadline deadline{60s};
  rendezvous_test::Lines lines;
  std::vector<rendezvous_test::Member> members;
  std::vector<std::shared_ptr<TcpMesh>> meshes;
  std::vector<std::unique_ptr<JobGroup>> groups;
  std::vector<std::exception_ptr> errors;

 private:
  std::chrono::milliseconds timeout_;
};

}  // namespace

// A group of GPUs cannot be built on a bare TcpGroup, which would send NCCL's id unencrypted.
static_assert(SharesSecrets<HierarchicalGroup<JobGroup>::Member> &&
              !SharesSecrets<HierarchicalGroup<TcpGroup>::Member>);

TEST_CASE("all ranks get the secrets of rank 0, one after the other") {
  for (const std::size_t size : {1u, 2u, 4u}) {
    Job job(size);
    for (unsigned char salt = 1; salt < 4; ++salt) {
      std::vector<std::string> own;
      for (std::size_t r = 0; r < size; ++r)
        own.push_back(secret_of(static_cast<unsigned char>(salt + 50 * r)));
      const auto all = job.share(own);
      for (std::size_t r = 0; r < size; ++r) {
        CHECK_FALSE(job.errors[r]);
        CHECK(all[r] == secret_of(salt));
      }
    }
    CHECK(job.share(std::vector<std::string>(size)) == std::vector<std::string>(size));
  }
}

TEST_CASE("two groups share different secrets concurrently") {
  Job job(3);
  std::vector<std::unique_ptr<JobGroup>> others;
  for (std::size_t r = 0; r < 3; ++r)
    others.push_back(
        std::make_unique<JobGroup>(job.data(r, 1), 20s, job.members[r].get(), "other secrets"));
  std::vector<std::string> first(3, std::string(128, 'a')), second(3, std::string(128, 'b'));
  first[0] = secret_of(1);
  second[0] = secret_of(2);
  const auto share = [](JobGroup& group, std::string& s) {
    group.share_secret(reinterpret_cast<std::byte*>(s.data()), s.size());
  };
  const auto errors = tcp_test::in_threads(6, [&](std::size_t i) {
    if (i < 3)
      share(*job.groups[i], first[i]);
    else
      share(*others[i - 3], second[i - 3]);
  });
  for (const auto& error : errors) CHECK_FALSE(error);
  CHECK(first == std::vector<std::string>(3, secret_of(1)));
  CHECK(second == std::vector<std::string>(3, secret_of(2)));
}

TEST_CASE("a secret is never sent in the clear, except in a job without a secret") {
  if (LOCKSTEP_HEARS == 0) SKIP("the thread sanitizer listens itself");
  for (const bool has_secret : {true, false}) {
    Job job(2, has_secret);
    const Ear ear;
    const auto all = job.share({secret_of(7), std::string(128, '\0')});
    CHECK(all[1] == secret_of(7));
    CHECK(ear.has_heard(secret_of(7)) == !has_secret);
    // The recorder does see what is sent over a data connection.
    std::string numbers[2] = {secret_of(9), std::string(128, '\0')};
    job.in_each([&](std::size_t r) { job.groups[r]->broadcast(numbers[r].data(), 128, 0); });
    CHECK(numbers[1] == secret_of(9));
    CHECK(ear.has_heard(secret_of(9)));
  }
}

TEST_CASE("when rank 0 is lost before it shares, all others name it immediately") {
  Job job(3);
  std::vector<std::string> own(3, std::string(128, 'x'));
  const auto began = Clock::now();
  job.in_each([&](std::size_t r) {
    if (r == 0) {
      job.groups[0]->barrier();  // it has arrived, and now dies
      rendezvous_test::Access::kill(*job.members[0]);
    } else {
      job.groups[r]->share_secret(reinterpret_cast<std::byte*>(own[r].data()), own[r].size());
    }
  });
  CHECK(Clock::now() - began < 3s);
  for (const std::size_t r : {1u, 2u}) {
    const std::string message = job.message_of<PeerLost>(r);
    CAPTURE(message);
    CHECK(message.find("rank 0") != std::string::npos);
    CHECK(message.find("closed its connection") != std::string::npos);
    CHECK(own[r] == std::string(128, 'x'));
  }
}

TEST_CASE("a rank that does not take part in sharing a secret is named after the timeout") {
  Job job(3, true, 200ms);
  std::string own[3];
  SECTION("it is absent") {
    job.in_each([&](std::size_t r) {
      if (r != 2) job.groups[r]->share_secret(reinterpret_cast<std::byte*>(own[r].data()), 0);
    });
    bool is_named = false;
    for (const std::size_t r : {0u, 1u}) {
      REQUIRE(job.errors[r]);
      CHECK(job.message_of<CollectiveError>(r) != "no error");
      try {
        std::rethrow_exception(job.errors[r]);
      } catch (const CollectiveTimeout& e) {
        is_named = is_named || e.peer() == 2;
      } catch (const CollectiveError&) {
      }
    }
    CHECK(is_named);
  }
  SECTION("rank 0 arrives and then hangs") {
    job.in_each([&](std::size_t r) {
      if (r == 0)
        job.groups[0]->barrier();
      else
        job.groups[r]->share_secret(reinterpret_cast<std::byte*>(own[r].data()), 0);
    });
    for (const std::size_t r : {1u, 2u}) {
      CHECK(job.message_of<CollectiveTimeout>(r).starts_with(
          "share_secret: rank 0 did not share its secret: get "));
      try {
        std::rethrow_exception(job.errors[r]);
      } catch (const CollectiveError& e) {
        CHECK(e.peer() == 0);
      }
    }
  }
}

TEST_CASE("ranks that call another operation, or expect another size, are refused") {
  Job job(2);
  std::string own[2] = {secret_of(1), std::string(128, 'x')};
  SECTION("another operation") {
    job.in_each([&](std::size_t r) {
      if (r == 0)
        job.groups[0]->share_secret(reinterpret_cast<std::byte*>(own[0].data()), 128);
      else
        job.groups[1]->broadcast(own[1].data(), 128, 0);
    });
    for (const std::size_t r : {0u, 1u}) CHECK(job.message_of<UsageError>(r) != "no error");
  }
  SECTION("another size") {
    job.in_each([&](std::size_t r) {
      job.groups[r]->share_secret(reinterpret_cast<std::byte*>(own[r].data()), r == 0 ? 128 : 64);
    });
    CHECK(job.message_of<UsageError>(1) ==
          "share_secret: rank 0 shares 128 bytes, rank 1 expects 64; all ranks must make the same "
          "calls in the same order");
  }
  CHECK(own[1] == std::string(128, 'x'));
}
