#pragma once

#include "lockstep/collectives/machine_group.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithms/channel_group.hpp"
#include "lockstep/collectives/algorithms/line_slice.hpp"
#include "lockstep/collectives/shared_memory/shared_channel.hpp"
#include "lockstep/collectives/tcp/tcp_channel.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// An operation is a begin, after which members read what others of the machine have written, work
/// in lanes, and an end, after which members read what the lanes have written:
///
///     publish | begin: compare the machine's calls | lanes: compare with other machines | end
struct MachineGroup::Member final : detail::ByteCollective {
  using Call = detail::CollectiveCall;

  /// Bytes of an all-reduce that are exchanged between two barriers.
  static constexpr std::size_t segment = std::size_t{16} << 20;
  static constexpr std::size_t line = 64;

  Member(std::shared_ptr<SharedMemory> memory, std::shared_ptr<TcpMesh> connections,
         MachineLayout machines_of, std::size_t own_rank, const Options& options)
      : layout(std::move(machines_of)),
        replica(own_rank),
        replicas(layout.size()),
        machine(layout.machine_of(replica)),
        local(replica - layout.first(machine)),
        members(layout.counts[machine]),
        machines(layout.machines()),
        most(layout.most()),
        lanes(layout.lanes()),
        order(options.order),
        timeout(std::min<std::chrono::nanoseconds>(options.timeout, std::chrono::hours(8760))),
        shared(std::move(memory), options.channel, {local, members, timeout, options.spins}, order,
               layout.members(machine)),
        chunk(detail::SharedChannel::chunk_of(most)),
        mesh(std::move(connections)),
        parts(replicas) {
    for (std::size_t m = 0; m < machines; ++m) firsts.push_back(layout.first(m));
  }

  /// Claims this member's channel of the mesh.
  void connect(const Options& options) {
    network = mesh->channels_[options.channel].get();
    Options of_network = options;
    of_network.timeout = network_timeout();
    network->claim(of_network, [this]() -> std::optional<detail::Shutdown> {
      if (!shared.barrier().has_ended()) return std::nullopt;
      return shared.shutdown();
    });
    algorithms.emplace(*network, mesh->options().topology, order);
  }

  std::size_t rank() const override { return replica; }
  std::size_t size() const override { return replicas; }
  std::shared_ptr<ExchangeAllocator> exchange_allocator() const override {
    return shared.exchange_allocator();
  }
  void abort() override { end_all(because(detail::Shutdown::Cause::aborted, replica)); }
  void lose(std::size_t lost) override { end_all(because(detail::Shutdown::Cause::lost, lost)); }
  ExchangeProgress progress() const override {
    ExchangeProgress now = shared.barrier().progress();
    const ExchangeProgress across = network ? network->progress() : ExchangeProgress{};
    now.waits_for = now.waits_for ? shared.name(*now.waits_for) : across.waits_for;
    now.moved = across.moved;
    return now;
  }

  void all_reduce(const Call& call, std::byte* p, const detail::Additions& add,
                  double* sums) override {
    const std::size_t bytes = call.bytes(), sums_bytes = call.sum_bytes();
    const bool sums_first = in_lines(sums_bytes) <= few();
    const std::size_t at = sums_first ? in_lines(sums_bytes) : 0;
    const bool fits = sums_first && at + bytes <= few();
    const std::size_t in_slots = fits ? at + bytes : at;
    run(call, [&] {
      if (at > 0) std::memcpy(shared.input(), sums, sums_bytes);
      if (fits && bytes > 0) std::memcpy(shared.input() + at, p, bytes);
      std::size_t done = 0;
      try {
        do {
          const std::size_t count = fits ? 0 : std::min(segment, bytes - done);
          const bool is_first = done == 0, gathers = local == 0 && is_first && (fits || at > 0);
          if (count > 0) shared.publish(call, stage(p + done, count));
          begin(is_first);
          if (gathers || (count > 0 && local < lanes))
            across(call, [&](auto& lane) {
              if (gathers) gather_and_add(lane, in_slots, at > 0 ? sums_bytes : 0, add.parts);
              if (count > 0) reduce_slice(lane, count, add.parts);
            });
          end();
          if (is_first && at > 0) std::memcpy(sums, shared.input_of(0), sums_bytes);
          if (fits && bytes > 0) std::memcpy(p, shared.input_of(0) + at, bytes);
          if (count > 0 && is_copied) std::memcpy(p + done, copy, count);
          done += count;
        } while (!fits && done < bytes);
      } catch (...) {
        if (!fits) shared.exchange_allocator()->make_private();  // others may go on writing
        throw;
      }
    });
    if (!sums_first)
      all_reduce(Call::of<double>(Call::Operation::all_reduce, call.m),
                 reinterpret_cast<std::byte*>(sums), detail::additions_of<double>, nullptr);
  }

  void broadcast(const Call& call, std::byte* p) override {
    const std::size_t bytes = call.bytes();
    const std::size_t home = layout.machine_of(call.root), place = call.root - firsts[home];
    const bool is_home = home == machine, is_root = call.root == replica;
    run(call, [&] {
      std::size_t at = 0;
      do {
        const std::size_t count = std::min(chunk, bytes - at);
        const std::size_t active = count <= few() ? 1 : lanes;
        if (is_root && count > 0) std::memcpy(shared.input(), p + at, count);
        begin(at == 0);
        if (local < active)
          across(call, [&](auto& lane) {
            const Slice slice = detail::line_slice(count, active, local);
            std::byte* const from =
                is_home ? const_cast<std::byte*>(shared.input_of(place)) : shared.input();
            lane.broadcast(from + slice.first, slice.count, home);
          });
        if (is_home && !is_root && count > 0) std::memcpy(p + at, shared.input_of(place), count);
        end();
        for (std::size_t l = 0; l < active && !is_home; ++l) {
          const Slice slice = detail::line_slice(count, active, l);
          if (slice.count > 0)
            std::memcpy(p + at + slice.first, shared.input_of(l) + slice.first, slice.count);
        }
        at += count;
      } while (at < bytes);
    });
  }

  void all_gather(const Call& call, const std::byte* p, std::byte* out) override {
    const std::size_t bytes = call.bytes();
    // A lane's result, with room for the largest machine at each, must fit in a slot.
    const std::size_t places = machines * most, room = chunk / places;
    const std::size_t of_lane = room < line ? room : room / line * line;
    const std::size_t of_all = room < line ? room : lanes * of_lane;
    const std::size_t least = std::min(few(), of_lane);
    run(call, [&] {
      std::size_t at = 0;
      do {
        const std::size_t count = std::min(of_all, bytes - at);
        const std::size_t active = count <= least ? 1 : lanes;
        if (count > 0) std::memcpy(shared.input(), p + at, count);
        begin(at == 0);
        if (local < active)
          across(call, [&](auto& lane) {
            const Slice slice = detail::line_slice(count, active, local);
            const std::size_t block = most * slice.count;
            std::byte* const all = shared.input();
            for (std::size_t l = 0; l < members && slice.count > 0; ++l)
              std::memcpy(all + machine * block + l * slice.count, shared.input_of(l) + slice.first,
                          slice.count);
            lane.all_gather(block, all);
          });
        end();
        for (std::size_t l = 0; l < active; ++l) {
          const Slice slice = detail::line_slice(count, active, l);
          for (std::size_t r = 0, m = 0; r < replicas && slice.count > 0; ++r) {
            if (m + 1 < machines && r == firsts[m + 1]) ++m;
            std::memcpy(out + r * bytes + at + slice.first,
                        shared.input_of(l) + (m * most + r - firsts[m]) * slice.count, slice.count);
          }
        }
        at += count;
      } while (at < bytes);
    });
  }

  void barrier(const Call& call) override {
    run(call, [&] {
      begin(true);
      if (local == 0) across(call, [](auto& lane) { lane.barrier(); });
      end();
    });
  }

  static std::size_t in_lines(std::size_t bytes) { return (bytes + line - 1) / line * line; }

  /// Up to this many bytes of each member travel in lane 0.
  std::size_t few() const {
    using Algorithms = detail::ChannelGroup<detail::TcpChannel>;
    const bool is_direct = detail::topology_of(machines) == detail::Topology::direct;
    const std::size_t of_machine = is_direct ? Algorithms::small : Algorithms::small_tree;
    return std::max(line, of_machine / most / line * line);
  }

  /// Waits are longer the later they are in an operation, so that who waits for a process that does
  /// not arrive reports it before those who wait for the waiting one.
  std::chrono::nanoseconds end_more() const { return timeout / 2; }
  std::chrono::nanoseconds network_timeout() const { return timeout + timeout / 4; }

  /// Runs body() as one operation. Any exception ends those of all processes.
  template <class Body>
  void run(const Call& call, const Body& body) {
    try {
      if (members > 1) detail::count_sent(call.bytes() + call.sum_bytes());
      shared.publish(call);
      body();
    } catch (...) {
      end_by_error(std::current_exception());
      throw;
    }
  }

  /// Waits for the machine's members: at the begin of an operation, or of its next part.
  void begin(bool is_first) { is_first ? shared.begin() : shared.next(); }
  void end() { shared.next(end_more()); }

  /// Runs f(algorithms) in this member's lane.
  template <class F>
  void across(const Call& call, const F& f) {
    network->run(call, [&] { f(*algorithms); });
  }

  void end_all(const detail::Shutdown& why) {
    shared.barrier().end(why);
    if (mesh) mesh->end(why);
  }

  void end_by_error(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const UsageError&) {
      shared.note_reported_mismatch();
    } catch (...) {
    }
    end_all(mesh && mesh->is_down()        ? mesh->shutdown()
            : shared.barrier().has_ended() ? shared.shutdown()
                                           : because(detail::Shutdown::Cause::aborted, replica));
  }

  detail::Shutdown because(detail::Shutdown::Cause cause, std::size_t whom) const {
    return {.cause = cause,
            .rank = static_cast<std::uint32_t>(whom),
            .by = static_cast<std::uint32_t>(replica)};
  }

  /// Adds the inputs of all members, `bytes` each, to this member's next input. The first
  /// `sums_bytes` are doubles.
  void gather_and_add(detail::ChannelGroup<detail::TcpChannel>& lane, std::size_t bytes,
                      std::size_t sums_bytes, detail::SumParts sum) {
    const std::size_t stride = in_lines(bytes), block = most * stride;
    gathered.resize(std::max(gathered.size(), machines * block));
    std::byte* const own = gathered.data() + machine * block;
    for (std::size_t l = 0; l < members && stride > 0; ++l)
      std::memcpy(own + l * stride, shared.input_of(l), stride);
    lane.all_gather(block, gathered.data());
    network->complete();
    std::size_t r = 0;
    for (std::size_t m = 0; m < machines; ++m)
      for (std::size_t l = 0; l < layout.counts[m]; ++l)
        parts[r++] = gathered.data() + m * block + l * stride;
    if (sums_bytes > 0)
      detail::sum_parts<double>(shared.input(), parts.data(), replicas, sums_bytes, order);
    const std::size_t at = in_lines(sums_bytes);
    for (const std::byte*& p : parts) p += at;
    if (bytes > at) sum(shared.input() + at, parts.data(), replicas, bytes - at, order);
  }

  /// Where the machine's members find p[0..bytes): in place, or a copy.
  std::uint64_t stage(const std::byte* p, std::size_t bytes) {
    const auto& heap = *shared.exchange_allocator();
    const std::uint64_t place = heap.place_of(p, bytes);
    is_copied = place == detail::SharedAllocator::nowhere;
    if (!is_copied) return place;
    if (bytes > copy_room) {
      if (copy != nullptr) shared.exchange_allocator()->release(copy);
      copy = shared.exchange_allocator()->allocate(bytes);
      copy_room = copy == nullptr ? 0 : bytes;
      if (copy == nullptr)
        throw Error("machine group: there is not enough shared memory to exchange {} bytes", bytes);
    }
    std::memcpy(copy, p, bytes);
    return heap.place_of(copy, bytes);
  }

  /// Adds this lane's slice of the elements that all members have staged, in the memory of each
  /// member of the machine.
  void reduce_slice(detail::ChannelGroup<detail::TcpChannel>& lane, std::size_t bytes,
                    detail::SumParts sum) {
    const Slice own = detail::line_slice(bytes, lanes, local);
    if (own.count == 0) return;
    const auto slice_in = [&](std::size_t l) { return shared.heap_of(l, bytes) + own.first; };
    for (std::size_t l = 0; l < members; ++l) parts[l] = slice_in(l);
    std::byte* const to = slice_in(local);
    lane.all_reduce_parts(to, parts.data(), members, own.count, sum);
    for (std::size_t l = 0; l < members; ++l)
      if (l != local) std::memcpy(slice_in(l), to, own.count);
  }

  const MachineLayout layout;
  const std::size_t replica, replicas;        // its rank, and the group's size
  const std::size_t machine, local, members;  // this process' machine, its place there, its size
  const std::size_t machines, most, lanes;
  const SumOrder order;
  const std::chrono::nanoseconds timeout;
  std::vector<std::size_t> firsts;  // the rank of each machine's first process
  detail::SharedChannel shared;
  const std::size_t chunk;  // of all machines
  std::shared_ptr<TcpMesh> mesh;
  detail::TcpChannel* network = nullptr;
  std::optional<detail::ChannelGroup<detail::TcpChannel>> algorithms;
  std::vector<const std::byte*> parts;
  std::vector<std::byte> gathered;
  std::byte* copy = nullptr;  // in the heap, of elements that are not
  std::size_t copy_room = 0;
  bool is_copied = false;
};

std::shared_ptr<MachineGroup::Member> MachineGroup::member(std::shared_ptr<SharedMemory> memory,
                                                           std::shared_ptr<TcpMesh> mesh,
                                                           MachineLayout layout, std::size_t rank,
                                                           const Options& options) {
  const auto is_wrong = [](std::size_t n) { return n < 1 || n > detail::BarrierState::max_size; };
  if (layout.counts.empty() || std::any_of(layout.counts.begin(), layout.counts.end(), is_wrong) ||
      rank >= layout.size() ||
      layout.machines() * layout.most() > detail::SharedChannel::chunk_of(layout.most()))
    throw UsageError(
        "machine group: rank {} of {} machines with up to {} processes; each machine must have 1 to "
        "{}, all together at most {}, and the rank must be below their number",
        rank, layout.machines(), layout.counts.empty() ? 0 : layout.most(),
        detail::BarrierState::max_size, detail::SharedChannel::chunk_of(1) / 32);
  if (!layout.keeps(options.order))
    throw UsageError(
        "machine group: machines that are no subtrees of SumOrder::tree cannot keep that order; "
        "use a TcpGroup");
  const std::size_t machine = layout.machine_of(rank), local = rank - layout.first(machine),
                    count = layout.counts[machine];
  const std::size_t channels = memory->bytes() / detail::SharedChannel::bytes(count);
  if (options.channel >= channels || memory->heap() == nullptr ||
      memory->heap_bytes() < (options.channel + 1) * count * detail::SharedChannel::area_of(count))
    throw UsageError(
        "machine group: channel {} of {} members does not fit in a memory of {} bytes with a heap of "
        "{}; give it the bytes of all channels",
        options.channel, count, memory->bytes(), memory->heap_bytes());
  const bool has_lane = local < layout.lanes();
  if (has_lane != (mesh != nullptr) ||
      (mesh && (mesh->size() != layout.machines() || mesh->rank() != machine ||
                options.channel >= mesh->channels_.size())))
    throw UsageError(
        "machine group: the mesh of rank {} must have a member of each of the {} machines, and "
        "channel {}",
        rank, layout.machines(), options.channel);
  detail::SharedChannel::reserve(*memory, options.channel, local, count);
  auto member = std::make_shared<Member>(std::move(memory), std::move(mesh), std::move(layout),
                                         rank, options);
  if (has_lane) member->connect(options);
  return member;
}

MachineGroup::MachineGroup(std::shared_ptr<SharedMemory> memory, std::shared_ptr<TcpMesh> mesh,
                           MachineLayout layout, std::size_t rank, const Options& options)
    : ProcessGroup(member(std::move(memory), std::move(mesh), std::move(layout), rank, options)) {}

}  // namespace lockstep
