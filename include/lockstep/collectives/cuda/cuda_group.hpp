/// \file
/// Replicas on GPUs as one group. Invariants: the members synchronize in a group over host memory,
/// which provides timeouts, abort and the order of ranks; data on the GPUs is exchanged by the
/// transport that all members chose together at their first operation; all members get the same
/// bits.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/collectives/cuda/nccl_communicator.hpp"
#include "lockstep/collectives/exchange/exchange_at_end.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/devices/cuda/context.hpp"
#include "lockstep/devices/cuda/growing_buffer.hpp"

namespace lockstep {

class ThreadGroup;

/// How data on GPUs reaches the other members.
///
/// - `kernel`: all replicas share one GPU of this process; a kernel sums in its memory.
/// - `nccl`: each replica has its own GPU.
/// - `host`: through host memory and the host's group; always possible, and the slowest.
enum class CudaTransport : std::uint8_t { kernel, nccl, host };

namespace detail::cuda {

/// The largest group that the kernel can sum.
inline constexpr std::size_t max_kernel_members = 8;

inline constexpr Source sum_source{"sum_members", R"cuda(
#if IS_DOUBLE
typedef double T;
#else
typedef float T;
#endif
struct Members {
  T* part[8];
};

// Member r owns the elements [first, end): it sums all members' and writes the sum to all members.
KERNEL(sum_members)(Members members, i64 first, i64 end) {
  for (i64 i = first + INDEX; i < end; i += STRIDE) {
    T x[MEMBERS];
    for (int r = 0; r < MEMBERS; ++r) x[r] = members.part[r][i];
#if IS_TREE
    // The tree of sum_members.hpp, bottom up; equal to it for 2, 4 and 8 members.
    for (int d = 1; d < MEMBERS; d *= 2)
      for (int r = 0; r + d < MEMBERS; r += 2 * d) x[r] += x[r + d];
#else
    for (int r = 1; r < MEMBERS; ++r) x[0] += x[r];
#endif
    for (int r = 0; r < MEMBERS; ++r) members.part[r][i] = x[0];
  }
}
)cuda"};

/// The kernel's first argument: one pointer per member.
template <class T>
struct Members {
  std::array<T*, max_kernel_members> part;
};

/// A random number that identifies this process, also among clones of one virtual machine.
inline std::uint64_t process_token() {
  static const std::uint64_t token = [] {
    std::array<std::uint64_t, 2> drawn{};
    if (getentropy(drawn.data(), sizeof drawn) != 0)
      drawn = {static_cast<std::uint64_t>(::getpid()),
               reinterpret_cast<std::uint64_t>(&process_token)};
    return mix(drawn[0], drawn[1]);
  }();
  return token;
}

}  // namespace detail::cuda

/// A collective over GPU memory. `HostGroup` is the group of the same replicas over host memory:
/// ThreadGroup or HierarchicalGroup.
/// \code
///   lockstep::CudaGroup<lockstep::ThreadGroup> group(lockstep::ThreadGroup::Options{.size = 2});
///   // in the thread of replica r, which holds the scope of its context:
///   lockstep::CudaGroup<lockstep::ThreadGroup>::Member member(group, r);
///   member.attach(context);
///   member.all_reduce(gradients, n);   // on the GPU, in the context's stream
/// \endcode
template <class HostGroup>
class CudaGroup {
 public:
  /// The arguments are those of the host's group.
  template <class... Args>
    requires std::constructible_from<HostGroup, Args...>
  explicit CudaGroup(Args&&... args) : host_(std::forward<Args>(args)...) {}

  /// Ends all pending operations. Callable from any thread.
  void abort() {
    aborted_.store(true, std::memory_order_release);
    host_.abort();
  }
  /// Makes an aborted group usable again; call it when no member is in an operation.
  void reset() {
    for (auto& member : members_)
      if (member) member->disconnect();
    host_.reset();
    aborted_.store(false, std::memory_order_release);
  }
  /// Call before the first operation: uses this transport if possible. A single member needs no
  /// transport; it uses NCCL only if that is preferred.
  void prefer(CudaTransport transport) { preferred_ = transport; }

  /// Whether this process has NCCL: then the host's group carries only small data, if each replica
  /// has its own GPU and the additions need no order.
  static bool can_connect() { return detail::cuda::has_nccl(); }

  class Member;
  class Exchange;

 private:
  /// A member's state, shared by its copies.
  struct MemberState {
    CudaContext* context = nullptr;
    std::optional<CudaTransport> transport;
    std::optional<detail::cuda::Event> ready, done;  // of the operations of members on one GPU
    std::optional<detail::cuda::NcclCommunicator> nccl;
    bool is_one_process = true;
    detail::cuda::NcclDeviceState* nccl_device = nullptr;
    std::size_t registered = 0;     // nccl_device->memory.requests() at the last registration
    std::vector<std::byte> staged;  // host memory of the host transport

    /// Leaves the communicator; the next operation chooses a transport again.
    void disconnect() {
      transport.reset();
      if (context == nullptr) return;
      context->watch(this, {});
      const auto scope = context->scope();
      nccl.reset();
    }
  };

  HostGroup host_;
  std::atomic<bool> aborted_{false};
  std::optional<CudaTransport> preferred_;
  std::array<std::unique_ptr<MemberState>, 256> members_;
};

/// One replica's view of the group. Its operations take memory of its GPU, run in the order of its
/// context's stream, and may return before they are done. \throws what the host's group throws.
template <class HostGroup>
class CudaGroup<HostGroup>::Member {
 public:
  using HostMember = typename HostGroup::Member;
  static_assert(SharesSecrets<HostMember>,
                "lockstep::CudaGroup: the host group's members cannot share a secret such as "
                "NCCL's id; give them 'void share_secret(std::byte*, std::size_t)'");

  /// `local` is the index among this process' replicas. `group` must outlive the member.
  Member(CudaGroup& group, std::size_t local)
      : group_(&group), local_(local), host_(group.host_, local) {
    if (!group.members_[local]) group.members_[local] = std::make_unique<MemberState>();
  }
  /// Sets the GPU of this replica; call it before the first operation.
  void attach(CudaContext& context) { state().context = &context; }
  /// Call it before the context is destroyed, in each member's thread, as with attach.
  void detach() {
    state().disconnect();
    if (state().context != nullptr) state().context->set_exchange_allocator({}, {});
    state().ready.reset();
    state().done.reset();
    state().context = nullptr;
  }

  Member in_background() const {
    Member member = *this;
    member.host_ = host_.in_background();
    return member;
  }
  /// The same replica's member for host memory: in the host's group, or over NCCL for large data.
  class Host;
  Host host() { return Host(*this); }

  std::size_t rank() const { return host_.rank(); }
  std::size_t size() const { return host_.size(); }
  void abort() { group_->abort(); }
  void barrier() { host_.barrier(); }

  /// The transport that all members chose; the first call is a collective operation and throws what
  /// one throws.
  CudaTransport transport() {
    if (!state().transport) choose_transport();
    return *state().transport;
  }

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }
  /// Replaces p[0..n) and sums[0..m) with their sums over all members.
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                  "lockstep::CudaGroup: all_reduce adds float or double; convert the numbers");
    if (is_alone() || n + m == 0) return;
    switch (transport()) {
      case CudaTransport::kernel:
        return on_shared_gpu(p, sums, [&](const auto& all) {
          const Slice mine = slice_of(n, size(), rank());
          add(parts<T>(all, &Published::p), mine.first, mine.first + mine.count);
          if (rank() == 0) add(parts<double>(all, &Published::sums), 0, m);
        });
      case CudaTransport::nccl:
        return state().nccl->all_reduce(commands(), p, n, sums, m);
      case CudaTransport::host:
        break;
    }
    std::byte* const at = stage(n * sizeof(T) + m * sizeof(double));
    T* const host_p = reinterpret_cast<T*>(at + m * sizeof(double));
    double* const host_sums = reinterpret_cast<double*>(at);
    download(host_sums, sums, m);
    download(host_p, p, n);
    context().wait_unchecked();
    host_.all_reduce(host_p, n, host_sums, m);
    upload(p, host_p, n);
    upload(sums, host_sums, m);
  }

  /// Replaces p[0..n) with the root's.
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    if (root >= size())
      throw UsageError("broadcast: root is {}; it must be below the group's size, {}", root,
                       size());
    if (is_alone() || n == 0) return;
    switch (transport()) {
      case CudaTransport::kernel:
        return on_shared_gpu(p, nullptr, [&](const auto& all) {
          if (rank() != root) copy(p, all[root].p, n * sizeof(T));
        });
      case CudaTransport::nccl:
        return state().nccl->broadcast(commands(), p, n * sizeof(T), root);
      case CudaTransport::host:
        break;
    }
    T* const host_p = reinterpret_cast<T*>(stage(n * sizeof(T)));
    download(host_p, p, n);
    context().wait_unchecked();
    host_.broadcast(host_p, n, root);
    upload(p, host_p, n);
  }

  /// out[r n..(r + 1) n) becomes p[0..n) of member r.
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    if (n == 0) return;
    if (is_alone()) return copy(out, p, n * sizeof(T));
    switch (transport()) {
      case CudaTransport::kernel:
        return on_shared_gpu(p, nullptr, [&](const auto& all) {
          for (std::size_t r = 0; r < size(); ++r) copy(out + r * n, all[r].p, n * sizeof(T));
        });
      case CudaTransport::nccl:
        return state().nccl->all_gather(commands(), p, n * sizeof(T), out);
      case CudaTransport::host:
        break;
    }
    T* const own = reinterpret_cast<T*>(stage((size() + 1) * n * sizeof(T)));
    download(own, p, n);
    context().wait_unchecked();
    host_.all_gather(own, n, own + n);
    upload(out, own + n, size() * n);
  }

 private:
  friend class Exchange;
  static constexpr std::size_t max_members = detail::cuda::max_kernel_members;

  /// Published by each member on one GPU to the others, for one operation.
  struct Published {
    const void* p;
    void* sums;
    CUevent ready, done;
  };
  /// Published by each member to all others, to choose the transport.
  struct Placement {
    std::array<char, 48> gpu{};
    std::uint64_t process = 0;
    bool has_nccl = false;
    std::uint8_t preferred = 255;  // a CudaTransport; 255: none
  };

  /// Whether operations have nothing to do. If NCCL is preferred a single member calls it, so that a
  /// machine with one GPU can test it.
  bool is_alone() const { return size() == 1 && group_->preferred_ != CudaTransport::nccl; }
  MemberState& state() const { return *group_->members_[local_]; }
  CudaContext& context() const {
    if (state().context == nullptr)
      throw UsageError("cuda group: this member has no GPU; call attach before its operations");
    return *state().context;
  }
  detail::cuda::Commands& commands() const { return context().commands(); }
  void copy(void* to, const void* from, std::size_t bytes) {
    context().copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  }
  template <class T>
  void download(T* to, const T* from, std::size_t n) {
    context().download(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                       n * sizeof(T));
  }
  template <class T>
  void upload(T* to, const T* from, std::size_t n) {
    context().upload(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                     n * sizeof(T));
  }
  std::byte* stage(std::size_t bytes) {
    if (bytes > state().staged.size()) state().staged.resize(bytes);
    return state().staged.data();
  }

  template <class T>
  detail::cuda::Members<T> parts(const std::array<Published, max_members>& all, auto which) const {
    detail::cuda::Members<T> members{};
    for (std::size_t r = 0; r < size(); ++r)
      members.part[r] = static_cast<T*>(const_cast<void*>(static_cast<const void*>(all[r].*which)));
    return members;
  }
  template <class T>
  void add(const detail::cuda::Members<T>& members, std::size_t first, std::size_t end) {
    if (first == end) return;
    context().launch(context().kernel(detail::cuda::sum_source, "sum_members",
                                      {{"MEMBERS", size()},
                                       {"IS_TREE", group_->host_.order() == SumOrder::tree},
                                       {"IS_DOUBLE", std::is_same_v<T, double>}}),
                     detail::cuda::Grid::over(end - first), members,
                     static_cast<std::int64_t>(first), static_cast<std::int64_t>(end));
  }

  /// Runs an operation of members on one GPU: work(what all have published), ordered by events
  /// after all earlier and before all later work of all members' streams.
  ///
  ///     record ready ── all_gather ── wait for all ready ── work ── record done ── barrier
  ///     ── wait for all done
  template <class Work>
  void on_shared_gpu(const void* p, void* sums, const Work& work) {
    MemberState& s = state();
    if (!s.ready) {
      s.ready.emplace();
      s.done.emplace();
    }
    const CUstream stream = context().stream();
    commands().flush();
    s.ready->record(stream);
    const Published mine{p, sums, s.ready->get(), s.done->get()};
    std::array<Published, max_members> all{};
    host_.all_gather(&mine, 1, all.data());
    const auto wait = [&](CUevent Published::* which) {
      for (std::size_t r = 0; r < size(); ++r)
        if (r != rank())
          detail::cuda::check(detail::cuda::driver().cuStreamWaitEvent(stream, all[r].*which, 0),
                              "waiting for another replica");
    };
    wait(&Published::ready);
    work(all);
    commands().flush();
    s.done->record(stream);
    host_.barrier();
    wait(&Published::done);
  }

  void choose_transport() {
    Placement mine;
    const std::string& uuid = context().gpu().uuid;
    std::copy_n(uuid.data(), std::min(uuid.size(), mine.gpu.size()), mine.gpu.data());
    mine.process = detail::cuda::process_token();
    mine.has_nccl = detail::cuda::has_nccl();
    if (group_->preferred_) mine.preferred = static_cast<std::uint8_t>(*group_->preferred_);
    std::vector<Placement> all(size());
    host_.all_gather(&mine, 1, all.data());

    const bool one_process = std::all_of(
        all.begin(), all.end(), [&](const Placement& w) { return w.process == mine.process; });
    state().is_one_process = one_process;
    const bool one_gpu =
        std::all_of(all.begin(), all.end(), [&](const Placement& w) { return w.gpu == mine.gpu; });
    bool own_gpus = true;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) own_gpus = own_gpus && all[i].gpu != all[j].gpu;
    const bool tree = group_->host_.order() == SumOrder::tree;
    const bool power_of_two = (size() & (size() - 1)) == 0;
    const bool nccl_loads =
        std::all_of(all.begin(), all.end(), [](const Placement& w) { return w.has_nccl; });
    // NCCL's order of additions is unspecified, and virtual shards need that of the tree.
    const bool can_nccl = own_gpus && nccl_loads && !tree;
    const bool can_kernel =
        one_process && one_gpu && size() <= max_members && (!tree || power_of_two);
    const auto allowed = [&](CudaTransport t) {
      return std::all_of(all.begin(), all.end(), [&](const Placement& w) {
        return w.preferred == 255 || w.preferred == static_cast<std::uint8_t>(t);
      });
    };
    CudaTransport chosen = CudaTransport::host;
    if (can_kernel && allowed(CudaTransport::kernel))
      chosen = CudaTransport::kernel;
    else if (can_nccl && allowed(CudaTransport::nccl))
      chosen = CudaTransport::nccl;
    else if (own_gpus && !tree && !nccl_loads && rank() == 0)
      log(LogLevel::warning,
          "cuda: NCCL cannot be loaded on all workers, so gradients are exchanged through host "
          "memory; install NCCL 2.28 or later");
    if (chosen == CudaTransport::nccl) connect();
    state().transport = chosen;
  }

  /// Joins a new communicator. Its id is shared as a secret: any process that knows it can join.
  void connect() {
    ncclUniqueId id{};
    if (rank() == 0) id = detail::cuda::NcclCommunicator::make_id();
    host_.share_secret(reinterpret_cast<std::byte*>(id.internal), sizeof id.internal);
    state().nccl.reset();
    state().registered = 0;
    state().nccl_device = &context().template handle<detail::cuda::NcclDeviceState>();
    state().nccl.emplace(id, size(), rank(), group_->host_.timeout(), group_->aborted_,
                         *state().nccl_device);
    context().watch(&state(),
                    [s = &state()](std::chrono::nanoseconds waited) { s->nccl->poll(waited); });
  }

  /// Memory that NCCL reduces in place; null if this group does not use NCCL.
  std::byte* allocate_registered(std::size_t bytes) {
    if (is_alone() || transport() != CudaTransport::nccl) return nullptr;
    return state().nccl_device->memory.allocate(bytes);
  }
  /// Whether all members pass true; a collective operation.
  bool all_agree(bool yes) {
    const auto mine = static_cast<std::uint8_t>(yes);
    std::vector<std::uint8_t> all(size());
    host_.all_gather(&mine, 1, all.data());
    return std::all_of(all.begin(), all.end(), [](std::uint8_t r) { return r == 1; });
  }
  /// Call it before an exchange: memory allocated since the last one is registered by all members
  /// or by none, because NCCL does not allow a mixture.
  void register_memory() {
    if (state().registered != state().nccl_device->memory.requests()) register_together();
  }
  void register_together() {
    if (!all_agree(state().nccl->register_memory())) state().nccl->deregister_memory();
    state().registered = state().nccl_device->memory.requests();
  }

  CudaGroup* group_;
  std::size_t local_;
  HostMember host_;
};

/// The member for host memory, which must not outlive its Member. The host's group may have slow
/// connections between processes, or send everything through the chief (StoreGroup), so what is
/// large goes through the GPUs if these are connected by NCCL.
template <class HostGroup>
class CudaGroup<HostGroup>::Member::Host {
 public:
  explicit Host(Member& member) : member_(&member) {}

  std::size_t rank() const { return member_->rank(); }
  std::size_t size() const { return member_->size(); }
  void abort() { member_->abort(); }

  /// In the host's group: its order of additions is defined, NCCL's is not.
  template <class T>
  void all_reduce(T* p, std::size_t n) {
    member_->host_.all_reduce(p, n);
  }
  void broadcast(std::byte* p, std::size_t n, std::size_t root) {
    if (!uses_gpus(n)) return member_->host_.broadcast(p, n, root);
    const std::size_t most = std::min(n, staged);
    std::byte* const part = stage(most);
    for (std::size_t at = 0; at < n; at += most) {
      const std::size_t bytes = std::min(most, n - at);
      if (rank() == root) member_->upload(part, p + at, bytes);
      member_->broadcast(part, bytes, root);
      if (rank() != root) member_->download(p + at, part, bytes);
      member_->context().wait_unchecked();
    }
  }
  void all_gather(const std::byte* p, std::size_t n, std::byte* out) {
    if (!uses_gpus(n * size())) return member_->host_.all_gather(p, n, out);
    const std::size_t most = std::min(n, std::max<std::size_t>(staged / (size() + 1), 1));
    std::byte* const own = stage(most * (size() + 1));
    for (std::size_t at = 0; at < n; at += most) {
      const std::size_t bytes = std::min(most, n - at);
      member_->upload(own, p + at, bytes);
      member_->all_gather(own, bytes, own + most);
      for (std::size_t r = 0; r < size(); ++r)
        member_->download(out + r * n + at, own + most + r * bytes, bytes);
      member_->context().wait_unchecked();
    }
  }

 private:
  /// Bytes of all members that the host's group carries; bytes on the GPU at a time.
  static constexpr std::size_t small = std::size_t{32} << 10, staged = std::size_t{8} << 20;
  struct Buffer : detail::cuda::GrowingBuffer {};

  bool uses_gpus(std::size_t bytes) {
    if constexpr (std::is_same_v<HostGroup, ThreadGroup>) return false;  // within one process
    return bytes > small && !member_->is_alone() && member_->transport() == CudaTransport::nccl &&
           !member_->state().is_one_process;
  }
  std::byte* stage(std::size_t bytes) {
    CudaContext& context = member_->context();
    return reinterpret_cast<std::byte*>(context.template handle<Buffer>().get(context, bytes));
  }

  Member* member_;
};

/// The exchange of a replica's gradients. With NCCL, ranges are reduced on a separate stream while
/// backward continues; with the other transports, all at once after backward.
template <class HostGroup>
class CudaGroup<HostGroup>::Exchange {
 public:
  explicit Exchange(Member member) : member_(std::move(member)), at_end_(member_) {}
  Exchange(const Exchange&) = delete;  // install_allocator gives its address to the context
  Exchange& operator=(const Exchange&) = delete;

  /// Makes the context allocate exchanged memory from NCCL; call it after `attach`. All members
  /// must allocate the same sizes in the same order. The exchange must live until `detach`.
  void install_allocator() {
    CudaContext& context = member_.context();
    context.set_exchange_allocator(
        [this](std::size_t bytes) { return member_.allocate_registered(bytes); },
        [&device = context.template handle<detail::cuda::NcclDeviceState>()](std::byte* p) {
          device.free(p);
        });
  }

  void post(float* p, std::size_t n) {
    if (by_nccl())
      member_.state().nccl->post(member_.commands(), p, n);
    else
      at_end_.post(p, n);
  }
  void finish(float* p, std::size_t n, double* sums, std::size_t m) {
    if (by_nccl()) {
      // A replica may have failed before its exchange; the barrier then throws here, before this
      // one enqueues an update with sums that never arrive. Replicas of several processes wait for
      // the sums on the host before they continue, so they need no barrier.
      if (member_.state().is_one_process) member_.barrier();
      member_.state().nccl->finish(member_.commands(), p, n, sums, m);
    } else {
      at_end_.finish(p, n, sums, m);
    }
  }
  void reset() { at_end_.reset(); }

 private:
  /// Whether NCCL is the transport. If so, registers the memory that it will reduce.
  bool by_nccl() {
    if (member_.is_alone() || member_.transport() != CudaTransport::nccl) return false;
    member_.register_memory();
    return true;
  }

  Member member_;
  ExchangeAtEnd<Member, float> at_end_;
};

}  // namespace lockstep
