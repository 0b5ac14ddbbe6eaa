/// \file
#include "lockstep/collectives/cuda/cuda_group.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <memory>
#include <vector>

#include "lockstep/collectives/hierarchical_group.hpp"
#include "lockstep/collectives/self_group.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "support/run_kernel.hpp"
#include "support/test_gpu.hpp"
#include "unit/collectives/contract.hpp"

namespace {

using namespace lockstep;
using namespace contract;
using Group = CudaGroup<ThreadGroup>;

/// A member of a group on a GPU with a host-memory interface, for the contract's checks.
class OnGpu {
 public:
  OnGpu(Group& group, std::size_t rank) : member_(group, rank), context_(Cuda{}.open(1, 0)) {
    member_.attach(context_);
  }
  ~OnGpu() {
    const auto scope = context_.scope();
    member_.detach();
  }
  std::size_t rank() const { return member_.rank(); }
  std::size_t size() const { return member_.size(); }
  void abort() { member_.abort(); }
  void barrier() { member_.barrier(); }
  CudaTransport transport() { return member_.transport(); }

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    const auto scope = context_.scope();
    Array<T> x(context_, p, n);
    Array<double> s(context_, sums, m);
    member_.all_reduce(x.data(), n, s.data(), m);
    x.download(p);
    s.download(sums);
  }
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    const auto scope = context_.scope();
    Array<T> x(context_, p, n);
    member_.broadcast(x.data(), n, root);
    x.download(p);
  }
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    const auto scope = context_.scope();
    Array<T> x(context_, p, n), all(context_, out, n * size());
    member_.all_gather(x.data(), n, all.data());
    all.download(out);
  }

 private:
  template <class T>
  class Array : public testing::DeviceArray<Cuda, T> {
   public:
    Array(CudaContext& context, const T* from, std::size_t n)
        : testing::DeviceArray<Cuda, T>(context, n), context_(context), bytes_(n * sizeof(T)) {
      context.upload(bytes(), reinterpret_cast<const std::byte*>(from), bytes_);
    }
    void download(T* to) {
      context_.download(reinterpret_cast<std::byte*>(to), bytes(), bytes_);
      context_.synchronize();
    }

   private:
    std::byte* bytes() { return reinterpret_cast<std::byte*>(this->data()); }
    CudaContext& context_;
    std::size_t bytes_;
  };

  Group::Member member_;
  CudaContext context_;
};

template <CudaTransport way, SumOrder sum_order, std::size_t most>
class Gpus {
 public:
  static constexpr std::size_t max_size = most;
  static constexpr SumOrder order = sum_order;
  static constexpr CudaTransport transport = way;

  Gpus(std::size_t size, std::chrono::milliseconds timeout)
      : size_(size),
        group_(ThreadGroup::Options{.size = size, .timeout = timeout, .order = sum_order}) {
    group_.prefer(way);
    for (std::size_t r = 0; r < size; ++r) members_.emplace_back(group_, r);
  }
  std::size_t size() const { return size_; }
  OnGpu& member(std::size_t rank) { return members_[rank]; }

 private:
  testing::TestGpu gpu_;
  std::size_t size_;
  Group group_;
  std::deque<OnGpu> members_;
};
using Kernel = Gpus<CudaTransport::kernel, SumOrder::ranks, 4>;
using Host = Gpus<CudaTransport::host, SumOrder::ranks, 4>;
using HostTree = Gpus<CudaTransport::host, SumOrder::tree, 4>;
/// Three replicas have no balanced tree, so they use the host's transport.
using KernelTree = Gpus<CudaTransport::kernel, SumOrder::tree, 4>;

template <class F>
void for_reals(const F& f) {
  f(float{}), f(double{});
}

}  // namespace

TEMPLATE_TEST_CASE("replicas on one GPU keep the contract of a collective", "", Kernel, Host,
                   HostTree, KernelTree) {
  constexpr SumOrder order = TestType::order;
  in_all_sizes<TestType>("all_reduce", [&](auto& member) {
    for_reals([&](auto type) {
      for (const std::size_t n : {0u, 1u, 7u, 1001u})
        check_sum<decltype(type)>(member, order, n, n);
      check_sum_with_sums<decltype(type)>(member, order, 5, 101, 3);
    });
  });
  in_all_sizes<TestType>("broadcast", [&](auto& member) {
    for (std::size_t root = 0; root < member.size(); ++root) {
      check_broadcast<float>(member, root, 101, root);
      check_broadcast<std::uint8_t>(member, root, 3, root);
    }
  });
  in_all_sizes<TestType>("all_gather", [&](auto& member) {
    for (const std::size_t n : {0u, 1u, 101u}) check_gather<float>(member, n, n);
    check_gather<std::uint8_t>(member, 3, 5);
  });
  const auto transport_of = [](std::size_t size) {
    TestType maker(size, no_timeout);
    std::vector<CudaTransport> ways(size);
    run_members(maker, "transport",
                [&](auto& member, std::size_t rank) { ways[rank] = member.transport(); });
    for (const CudaTransport way : ways) CHECK(way == ways[0]);
    return ways[0];
  };
  CHECK(transport_of(2) == TestType::transport);
  CHECK(transport_of(3) == (order == SumOrder::tree ? CudaTransport::host : TestType::transport));
}

TEMPLATE_TEST_CASE("an absent member ends the others' waits", "", Kernel, Host) {
  const auto call = [](auto& member, std::size_t) {
    float x[100] = {};
    member.all_reduce(x, 100);
  };
  {
    TestType maker(3, 50ms);
    const auto errors = run_members(maker, "timeout", call, {1});
    CHECK((is<CollectiveError>(errors[0]) && is<CollectiveError>(errors[2])));
    CHECK((is<CollectiveTimeout>(errors[0]) || is<CollectiveTimeout>(errors[2])));
  }
  TestType maker(3, no_timeout);
  std::thread aborting([&] {
    std::this_thread::sleep_for(20ms);
    for (std::size_t r = 0; r < 3; ++r) maker.member(r).abort();
  });
  const auto errors = run_members(maker, "abort", call, {2});
  aborting.join();
  CHECK((is<CollectiveAborted>(errors[0]) && is<CollectiveAborted>(errors[1])));
}

TEST_CASE("a member without a GPU is refused before it exchanges") {
  Group group(ThreadGroup::Options{.size = 2});
  Group::Member member(group, 0);
  float x = 0;
  try {
    member.all_reduce(&x, 1);
    FAIL("it was not refused");
  } catch (const UsageError& e) {
    CHECK(std::string(e.what()) ==
          "cuda group: this member has no GPU; call attach before its operations");
  }
}
