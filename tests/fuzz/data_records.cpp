// Hostile bytes as what a data connection receives: operations end by an error of the library, or
// complete if the bytes are a correct answer; nothing outside the caller's memory is written.
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "fuzz/promises.hpp"
#include "lockstep/collectives/tcp/tcp_group.hpp"
#include "lockstep/collectives/tcp/tcp_mesh.hpp"
#include "lockstep/collectives/tcp/wire.hpp"

namespace {

using namespace lockstep;
using fuzz::require;

WireKey key() {
  WireKey result;
  for (std::size_t i = 0; i < result.key.size(); ++i)
    result.key[i] = static_cast<unsigned char>(i * 11);
  return result;
}

/// The rest of the input as records with correct checksums: a kind, a length, and that many bytes.
std::vector<std::byte> as_records(const std::uint8_t* data, std::size_t size, bool sealed) {
  detail::Wire wire(sealed ? std::optional(key()) : std::nullopt);
  std::vector<std::byte> all;
  while (size >= 2) {
    const auto kind = static_cast<detail::RecordHead::Kind>(data[0] % 4);
    const std::size_t n = std::min<std::size_t>(data[1], size - 2);
    std::vector<std::byte> record(sizeof(detail::RecordHead) + n + 16);
    record.resize(wire.write(kind, reinterpret_cast<const std::byte*>(data + 2), n, record.data()));
    all.insert(all.end(), record.begin(), record.end());
    data += 2 + n;
    size -= 2 + n;
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const int mode = data[0] % 3;  // raw bytes, records with a checksum, sealed records
  std::size_t n = data[1];
  data += 2;
  size -= 2;
  std::vector<std::byte> bytes(size);
  if (mode == 0)
    std::copy_n(reinterpret_cast<const std::byte*>(data), size, bytes.begin());
  else
    bytes = as_records(data, size, mode == 2);

  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  FileDescriptor peer(ends[1]);
  std::vector<DataConnection> connections;
  connections.push_back({.rank = 1, .index = 0, .socket = FileDescriptor(ends[0])});
  if (mode == 2) connections[0].send_key = connections[0].receive_key = key();
  const auto mesh = std::make_shared<TcpMesh>(TcpMesh::Options{.rank = 0, .size = 2, .channels = 1},
                                              std::move(connections));
  TcpGroup group(mesh, {.timeout = std::chrono::seconds(1)});
  (void)::send(ends[1], bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(ends[1], SHUT_WR);
  std::vector<float> x(n + 2, 1.0f), all(2 * n);
  try {
    group.all_reduce(x.data() + 1, n);
    group.broadcast(x.data() + 1, n, 1);
    group.all_gather(x.data() + 1, n, all.data());
    group.barrier();
  } catch (const CollectiveError&) {
  } catch (const UsageError&) {
  }
  require(x.front() == 1 && x.back() == 1);
  return 0;
}
