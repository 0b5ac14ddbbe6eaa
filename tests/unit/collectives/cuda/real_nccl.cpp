/// \file
/// The real NCCL, with one rank on the machine's GPU: it accepts the group's calls, also with
/// registered memory. Sums over several ranks need a machine with several GPUs.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <numeric>
#include <vector>

#include "lockstep/collectives/cuda/cuda_group.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/model/buffer.hpp"
#include "support/log_lines.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;
using Group = CudaGroup<ThreadGroup>;
template <class T>
using Buffer = lockstep::detail::Buffer<CudaContext, T>;

namespace {

template <class T>
std::vector<T> numbers(std::size_t n) {
  std::vector<T> x(n);
  std::iota(x.begin(), x.end(), T{1});
  return x;
}

template <class T>
std::vector<T> back(CudaContext& context, const Buffer<T>& buffer) {
  std::vector<T> host(buffer.size());
  buffer.download(host.data());
  context.synchronize();
  return host;
}

}  // namespace

TEST_CASE("the real NCCL runs each operation of a group with one member") {
  if (!testing::has_gpu()) SKIP("this machine has no GPU that lockstep can use");
  if (!lockstep::detail::cuda::has_nccl()) SKIP("NCCL cannot be loaded");
  const testing::LogLines log;
  Group group(ThreadGroup::Options{.size = 1});
  group.prefer(CudaTransport::nccl);
  CudaContext context = Cuda{0}.open(1, 0);
  const auto scope = context.scope();
  Group::Member member(group, 0);
  Group::Exchange exchange(member);
  member.attach(context);
  exchange.install_allocator();
  REQUIRE(member.transport() == CudaTransport::nccl);

  constexpr std::size_t n = 100'003;
  const auto x = numbers<float>(n);
  const auto sums = numbers<double>(7);
  Buffer<float> g(context, n, lockstep::detail::Exchanged{});
  Buffer<double> s(context, sums.size(), lockstep::detail::Exchanged{});
  g.upload(x.data());
  s.upload(sums.data());
  SECTION("an exchange in registered memory, and after an abort") {
    for (int step = 0; step < 10; ++step) {
      if (step == 5) {
        group.abort();
        group.reset();
      }
      exchange.post(g.data() + 50'000, n - 50'000);
      exchange.finish(g.data(), 50'000, s.data(), sums.size());
      CHECK(back(context, g) == x);
      CHECK(back(context, s) == sums);
    }
  }
  SECTION("the operations of layers") {
    member.all_reduce(g.data(), n);
    member.all_reduce(s.data(), sums.size());
    member.broadcast(g.data(), n, 0);
    Buffer<float> all(context, n);
    member.all_gather(g.data(), n, all.data());
    CHECK(back(context, g) == x);
    CHECK(back(context, s) == sums);
    CHECK(back(context, all) == x);
  }
  CHECK(log.lines.empty());  // memory was registered
  member.detach();
}
