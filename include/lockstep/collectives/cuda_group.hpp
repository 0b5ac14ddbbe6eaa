/// \file
/// Replicas on GPUs as one group. Invariants: the members meet in a group over the host's memory,
/// which has the deadlines, the abort and the order of ranks; numbers on the GPUs travel by the way
/// that all members chose together when they first met; all members get the same bits.
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

#include "lockstep/collectives/exchange_at_end.hpp"
#include "lockstep/collectives/nccl_communicator.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/devices/cuda/context.hpp"

namespace lockstep {

/// How numbers on GPUs reach the other members.
///
/// - `kernel`: all replicas are on one GPU of this process; a kernel adds up what lies there.
/// - `nccl`: each replica has a GPU of its own.
/// - `host`: by the host's memory and its group; always possible, and the slowest.
enum class CudaTransport : std::uint8_t { kernel, nccl, host };

namespace detail::cuda {

/// Members that one kernel adds up.
inline constexpr std::size_t most_members = 8;

inline constexpr Source sum_source{"sum_members", R"cuda(
#if IS_DOUBLE
typedef double T;
#else
typedef float T;
#endif
struct Members {
  T* part[8];
};

// Member r owns a slice: it adds up everybody's elements there and gives all the sum.
KERNEL(sum_members)(Members members, i64 first, i64 end) {
  for (i64 i = first + INDEX; i < end; i += STRIDE) {
    T x[MEMBERS];
    for (int r = 0; r < MEMBERS; ++r) x[r] = members.part[r][i];
#if IS_TREE
    // The left half of n has (n + 1) / 2, and so on down.
    for (int d = 1; d < MEMBERS; d *= 2)
      for (int r = 0; r + d < MEMBERS; r += 2 * d) x[r] += x[r + d];
#else
    for (int r = 1; r < MEMBERS; ++r) x[0] += x[r];
#endif
    for (int r = 0; r < MEMBERS; ++r) members.part[r][i] = x[0];
  }
}
)cuda"};

/// Of the kernel's arguments.
template <class T>
struct Members {
  std::array<T*, most_members> part;
};

/// Tells processes apart, also on clones of one machine.
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

/// `HostGroup`: the same replicas over the host's memory, ThreadGroup or HierarchicalGroup.
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
  /// What the host's group is made of.
  template <class... Args>
    requires std::constructible_from<HostGroup, Args...>
  explicit CudaGroup(Args&&... args) : host_(std::forward<Args>(args)...) {}

  /// From any thread.
  void abort() {
    aborted_.store(true, std::memory_order_release);
    host_.abort();
  }
  /// After an abort, when no member is in an operation.
  void reset() {
    for (auto& member : members_)
      if (member) member->disconnect();
    host_.reset();
    aborted_.store(false, std::memory_order_release);
  }
  /// Before the first operation: this way, if it is possible. A single member uses none but NCCL,
  /// and that only if it is wished for.
  void prefer(CudaTransport transport) { preferred_ = transport; }

  class Member;
  class Exchange;

 private:
  /// What a member keeps; shared by its copies.
  struct MemberState {
    CudaContext* context = nullptr;
    std::optional<CudaTransport> transport;
    std::optional<detail::cuda::Event> ready, done;
    std::optional<detail::cuda::NcclCommunicator> nccl;
    bool is_one_process = true;
    detail::cuda::NcclDeviceState* nccl_device = nullptr;
    std::size_t registered = 0;  // of what the family's memory was asked for
    std::vector<std::byte> staged;

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

/// One replica's place. Its operations take memory of its GPU and are done in the order of its
/// stream; they may return before they are done. \throws what the host's group throws.
template <class HostGroup>
class CudaGroup<HostGroup>::Member {
 public:
  using HostMember = typename HostGroup::Member;
  static_assert(SharesSecrets<HostMember>,
                "lockstep::CudaGroup: members of the host's group cannot share a secret, which "
                "NCCL's id is; give them 'void share_secret(std::byte*, std::size_t)'");

  /// `local`: index among this process' replicas. `group` must outlive the member.
  Member(CudaGroup& group, std::size_t local)
      : group_(&group), local_(local), host_(group.host_, local) {
    if (!group.members_[local]) group.members_[local] = std::make_unique<MemberState>();
  }
  /// The GPU of this replica; to be called before the first operation.
  void attach(CudaContext& context) { state().context = &context; }
  /// Before the context ends: all members call it, each in its thread, as they called attach.
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
  /// The same replica, for memory of the host.
  HostMember& host() { return host_; }

  std::size_t rank() const { return host_.rank(); }
  std::size_t size() const { return host_.size(); }
  void abort() { group_->abort(); }
  void barrier() { host_.barrier(); }

  /// The way that all members chose. \throws what a meeting of them throws.
  CudaTransport transport() {
    if (!state().transport) choose_transport();
    return *state().transport;
  }

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }
  /// Replaces p[0..n) and sums[0..m) by their sums over all members.
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

  /// Replaces p[0..n) by the root's.
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    if (root >= size()) throw UsageError("broadcast: no root {} among {} members", root, size());
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

  /// out[0..size() n) becomes the p[0..n) of all members, in the order of ranks.
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
  static constexpr std::size_t max_members = detail::cuda::most_members;

  /// What members on one GPU tell each other.
  struct Published {
    const void* p;
    void* sums;
    CUevent ready, done;
  };
  /// What members tell each other when they first meet.
  struct Placement {
    std::array<char, 48> gpu{};
    std::uint64_t process = 0;
    bool has_nccl = false;
    std::uint8_t preferred = 255;
  };

  /// Nothing is to be done; but for a wish, so that one GPU shows what NCCL does.
  bool is_alone() const { return size() == 1 && group_->preferred_ != CudaTransport::nccl; }
  MemberState& state() const { return *group_->members_[local_]; }
  CudaContext& context() const {
    if (state().context == nullptr)
      throw UsageError("cuda group: a member without a GPU; call attach before its operations");
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

  /// On one GPU: work(what all have shown), after all that was said before on all members' streams,
  /// and before all that will be said after it.
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
    // NCCL adds in an order of its own, which virtual shards cannot use.
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
          "cuda: NCCL cannot be loaded on all workers, so gradients travel by the memory of the "
          "host; install NCCL 2.28 or later");
    if (chosen == CudaTransport::nccl) connect();
    state().transport = chosen;
  }

  /// Whoever knows the id may join the communicator.
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

  /// Memory that NCCL reduces where it lies, if it is the way of this group; else null.
  std::byte* allocate_registered(std::size_t bytes) {
    if (is_alone() || transport() != CudaTransport::nccl) return nullptr;
    return state().nccl_device->memory.allocate(bytes);
  }
  /// Whether all members say yes; they meet.
  bool all_agree(bool yes) {
    const auto mine = static_cast<std::uint8_t>(yes);
    std::vector<std::uint8_t> all(size());
    host_.all_gather(&mine, 1, all.data());
    return std::all_of(all.begin(), all.end(), [](std::uint8_t r) { return r == 1; });
  }
  /// Before an exchange: what was taken since the last one is registered by all members or by none,
  /// since NCCL allows no mixture.
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

/// The exchange of a replica's gradients. By NCCL each range leaves on a stream of its own while
/// backward goes on; otherwise all leave when backward is over.
template <class HostGroup>
class CudaGroup<HostGroup>::Exchange {
 public:
  explicit Exchange(Member member) : member_(std::move(member)), at_end_(member_) {}
  Exchange(const Exchange&) = delete;  // the context keeps its address: see install_allocator
  Exchange& operator=(const Exchange&) = delete;

  /// After `attach`: the context's memory for exchanged numbers comes from here, and all members
  /// take the same, in the same order. The exchange must outlive what follows until `detach`.
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
      // A replica that failed before its exchange: nobody says what follows from it. The replicas
      // of several processes wait for the numbers themselves before they go on.
      if (member_.state().is_one_process) member_.barrier();
      member_.state().nccl->finish(member_.commands(), p, n, sums, m);
    } else {
      at_end_.finish(p, n, sums, m);
    }
  }
  void reset() { at_end_.reset(); }

 private:
  /// Whether it is; then NCCL knows all memory that it will reduce.
  bool by_nccl() {
    if (member_.is_alone() || member_.transport() != CudaTransport::nccl) return false;
    member_.register_memory();
    return true;
  }

  Member member_;
  ExchangeAtEnd<Member, float> at_end_;
};

}  // namespace lockstep
