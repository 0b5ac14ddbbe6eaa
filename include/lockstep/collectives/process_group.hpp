/// \file
/// A group of processes over any transport. Invariant: the group behaves as the one that it holds;
/// an operation costs one indirect call more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/collectives/collective_call.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/exchange_allocator.hpp"

namespace lockstep {

/// The types of numbers that groups add.
template <class T>
concept GroupNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8;

/// Owns one member of a group: a TcpGroup, a SharedMemoryGroup, ... \throws what the group throws.
/// \code
///   lockstep::ProcessGroup group(lockstep::TcpGroup(mesh, {.channel = 0}));
///   group.all_reduce(gradients, n, sums, 2);
/// \endcode
class ProcessGroup {
 public:
  template <class G>
    requires AllReducesWithSums<G, float> && AllReducesWithSums<G, double> &&
             Broadcasts<G, std::byte> && AllGathers<G, std::byte> && Barriers<G>
  explicit ProcessGroup(G group) : self_(std::make_unique<Holder<G>>(std::move(group))) {}

  std::size_t rank() const { return self_->rank(); }
  std::size_t size() const { return self_->size(); }
  void abort() { self_->abort(); }
  /// The same because the process `rank` was lost, which a group that can names in its errors.
  void lose(std::size_t rank) { self_->lose(rank); }
  /// Allocates memory that the processes exchange in place; null if the group cannot.
  std::shared_ptr<ExchangeAllocator> exchange_allocator() { return self_->exchange_allocator(); }

  template <GroupNumber T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }
  template <GroupNumber T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    self_->all_reduce(p, detail::elements_of<T>(n), sums, m);
  }
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    static_assert(std::is_trivially_copyable_v<T>);
    self_->broadcast(reinterpret_cast<std::byte*>(p), n * sizeof(T), root);
  }
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    self_->all_gather(reinterpret_cast<const std::byte*>(p), n * sizeof(T),
                      reinterpret_cast<std::byte*>(out));
  }
  void barrier() { self_->barrier(); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::size_t rank() = 0;
    virtual std::size_t size() = 0;
    virtual void abort() = 0;
    virtual void lose(std::size_t rank) = 0;
    virtual std::shared_ptr<ExchangeAllocator> exchange_allocator() = 0;
    virtual void all_reduce(void* p, detail::Elements elements, double* sums, std::size_t m) = 0;
    virtual void broadcast(std::byte* p, std::size_t n, std::size_t root) = 0;
    virtual void all_gather(const std::byte* p, std::size_t n, std::byte* out) = 0;
    virtual void barrier() = 0;
  };

  template <class G>
  struct Holder final : Base {
    explicit Holder(G g) : group(std::move(g)) {}
    std::size_t rank() override { return group.rank(); }
    std::size_t size() override { return group.size(); }
    void abort() override { group.abort(); }
    void lose(std::size_t rank) override {
      if constexpr (requires { group.lose(rank); })
        group.lose(rank);
      else
        group.abort();
    }
    std::shared_ptr<ExchangeAllocator> exchange_allocator() override {
      if constexpr (requires { group.exchange_allocator(); })
        return group.exchange_allocator();
      else
        return nullptr;
    }
    void all_reduce(void* p, detail::Elements elements, double* sums, std::size_t m) override {
      using Kind = detail::Elements::Kind;
      const auto sum = [&](auto number) {
        group.all_reduce(static_cast<decltype(number)*>(p), elements.n, sums, m);
      };
      const bool is_signed = elements.kind == Kind::ints;
      if (elements.kind == Kind::floats) return elements.size == 4 ? sum(float{}) : sum(double{});
      switch (elements.size) {
        case 1:
          return is_signed ? sum(std::int8_t{}) : sum(std::uint8_t{});
        case 2:
          return is_signed ? sum(std::int16_t{}) : sum(std::uint16_t{});
        case 4:
          return is_signed ? sum(std::int32_t{}) : sum(std::uint32_t{});
        default:
          return is_signed ? sum(std::int64_t{}) : sum(std::uint64_t{});
      }
    }
    void broadcast(std::byte* p, std::size_t n, std::size_t root) override {
      group.broadcast(p, n, root);
    }
    void all_gather(const std::byte* p, std::size_t n, std::byte* out) override {
      group.all_gather(p, n, out);
    }
    void barrier() override { group.barrier(); }

    G group;
  };

  std::unique_ptr<Base> self_;
};

static_assert(AllReduces<ProcessGroup, float> && AllReducesWithSums<ProcessGroup, float> &&
              Broadcasts<ProcessGroup, float> && AllGathers<ProcessGroup, float> &&
              Barriers<ProcessGroup>);

}  // namespace lockstep
