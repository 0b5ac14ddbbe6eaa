/// \file
/// Sockets of the simulated kernel: TCP over IPv4.
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "lockstep/testing/kernel/calls_files.ipp"

namespace lockstep::testing::detail {
namespace {

SimSocket* as_socket(const std::shared_ptr<SimFile>& file) {
  return dynamic_cast<SimSocket*>(file.get());
}

bool read_address(const sockaddr* address, socklen_t size, SimAddress& to) {
  if (address == nullptr || size < sizeof(sockaddr_in)) return false;
  sockaddr_in in;
  std::memcpy(&in, address, sizeof in);
  if (in.sin_family != AF_INET) return false;
  to = {ntohl(in.sin_addr.s_addr), ntohs(in.sin_port)};
  return true;
}

sockaddr_in to_sockaddr(const SimAddress& from) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(from.ip);
  in.sin_port = htons(from.port);
  return in;
}

void write_address(const SimAddress& from, sockaddr* address, socklen_t* size) {
  if (address == nullptr || size == nullptr) return;
  const sockaddr_in in = to_sockaddr(from);
  std::memcpy(address, &in, std::min<std::size_t>(*size, sizeof in));
  *size = sizeof in;
}

ssize_t receive(SimSocket& socket, std::span<const iovec> to, int flags) {
  const bool waits = (flags & MSG_DONTWAIT) == 0;
  const auto step = [&] { return socket.read(to, (flags & MSG_PEEK) != 0); };
  if ((flags & MSG_WAITALL) == 0 || to.size() != 1 || (flags & MSG_PEEK) != 0)
    return transfer(socket, waits, socket.receive_timeout, "data", step);
  iovec rest = to[0];
  while (rest.iov_len > 0) {
    const ssize_t n = transfer(socket, waits, socket.receive_timeout, "data",
                               [&] { return socket.read({&rest, 1}, false); });
    if (n <= 0 && rest.iov_len == to[0].iov_len) return n;
    if (n <= 0) break;
    rest.iov_base = static_cast<char*>(rest.iov_base) + n;
    rest.iov_len -= static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(to[0].iov_len - rest.iov_len);
}

/// A blocking send returns when all bytes are queued.
ssize_t send_all(SimSocket& socket, std::span<const iovec> from, int flags) {
  const bool waits = (flags & MSG_DONTWAIT) == 0;
  if (!waits || socket.nonblocking)
    return transfer(socket, false, never, "", [&] { return socket.write(from); });
  ssize_t sum = 0;
  for (iovec part : from)
    while (part.iov_len > 0) {
      const ssize_t n = transfer(socket, true, socket.send_timeout, "room to send",
                                 [&] { return socket.write({&part, 1}); });
      if (n < 0) return sum > 0 ? sum : n;
      sum += n;
      part.iov_base = static_cast<char*>(part.iov_base) + n;
      part.iov_len -= static_cast<std::size_t>(n);
    }
  return sum;
}

int connect_socket(SimSocket& socket, const SimAddress& address) {
  scheduler->charge(call_cost);
  const int begun = socket.connect(address);
  if (begun != -EINPROGRESS || socket.nonblocking) return result_of(begun);
  while (socket.state() == SimSocket::State::connecting)
    scheduler->block_in(socket.waiters, never, "a connection");
  return result_of(-socket.take_error());
}

int accept_socket(SimSocket& socket, sockaddr* address, socklen_t* size, int flags) {
  std::shared_ptr<SimSocket> found;
  const ssize_t result = transfer(socket, true, never, "a client", [&]() -> ssize_t {
    if (socket.state() != SimSocket::State::listening) return -EINVAL;
    found = socket.accept();
    return found ? 0 : -EAGAIN;
  });
  if (result < 0) return -1;
  found->nonblocking = (flags & SOCK_NONBLOCK) != 0;
  write_address(found->remote(), address, size);
  return simulation->files.add(std::move(found));
}

/// "host3" is the machine of rank 3.
std::string address_of_name(const std::string& name) {
  const std::size_t count = simulation->network.size();
  for (std::size_t rank = 0; rank < count; ++rank) {
    if (name != "host" + std::to_string(rank)) continue;
    in_addr address{};
    address.s_addr = htonl(SimNetwork::address_of(rank));
    char text[INET_ADDRSTRLEN];
    return ::inet_ntop(AF_INET, &address, text, sizeof text);
  }
  return name == "localhost" ? "127.0.0.1" : name;
}

struct Interface {
  ifaddrs entry{};
  sockaddr_in address{}, mask{};
  char name[8]{};
};

}  // namespace
}  // namespace lockstep::testing::detail

#pragma GCC visibility push(default)
extern "C" {

int socket(int family, int type, int protocol) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(socket)(family, type, protocol);
  if (family != AF_INET || (type & 0xf) != SOCK_STREAM) return result_of(-EAFNOSUPPORT);
  auto made = simulation->network.open(*this_thread->process);
  made->nonblocking = (type & SOCK_NONBLOCK) != 0;
  return simulation->files.add(std::move(made));
}

int socketpair(int family, int type, int protocol, int descriptors[2]) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(socketpair)(family, type, protocol, descriptors);
  const auto one = std::make_shared<SimPipe>(), other = std::make_shared<SimPipe>();
  for (int i = 0; i < 2; ++i) {
    auto end = std::make_shared<SimPipeEnd>(*this_thread->process, i == 0 ? one : other,
                                            i == 0 ? other : one);
    end->nonblocking = (type & SOCK_NONBLOCK) != 0;
    descriptors[i] = simulation->files.add(std::move(end));
  }
  return 0;
}

int bind(int descriptor, const sockaddr* address, socklen_t size) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(bind)(descriptor, address, size);
  SimAddress place;
  if (!as_socket(file) || !read_address(address, size, place)) return result_of(-EINVAL);
  return result_of(as_socket(file)->bind(place));
}

int listen(int descriptor, int backlog) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(listen)(descriptor, backlog);
  return result_of(as_socket(file) ? as_socket(file)->listen(backlog) : -ENOTSOCK);
}

int connect(int descriptor, const sockaddr* address, socklen_t size) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(connect)(descriptor, address, size);
  SimAddress place;
  if (!as_socket(file)) return result_of(-ENOTSOCK);
  if (!read_address(address, size, place)) return result_of(-EAFNOSUPPORT);
  return connect_socket(*as_socket(file), place);
}

int accept4(int descriptor, sockaddr* address, socklen_t* size, int flags) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(accept4)(descriptor, address, size, flags);
  if (!as_socket(file)) return result_of(-ENOTSOCK);
  return accept_socket(*as_socket(file), address, size, flags);
}

int accept(int descriptor, sockaddr* address, socklen_t* size) {
  using namespace lockstep::testing::detail;
  if (!simulated(descriptor)) return LOCKSTEP_NEXT(accept)(descriptor, address, size);
  return accept4(descriptor, address, size, 0);
}

int getsockname(int descriptor, sockaddr* address, socklen_t* size) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(getsockname)(descriptor, address, size);
  if (!as_socket(file)) return result_of(-ENOTSOCK);
  write_address(as_socket(file)->local(), address, size);
  return 0;
}

int getpeername(int descriptor, sockaddr* address, socklen_t* size) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(getpeername)(descriptor, address, size);
  if (!as_socket(file)) return result_of(-ENOTSOCK);
  if (as_socket(file)->state() != SimSocket::State::open) return result_of(-ENOTCONN);
  write_address(as_socket(file)->remote(), address, size);
  return 0;
}

int setsockopt(int descriptor, int level, int name, const void* value, socklen_t size) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(setsockopt)(descriptor, level, name, value, size);
  return result_of(as_socket(file) ? as_socket(file)->set_option(level, name, value, size)
                                   : -ENOTSOCK);
}

int getsockopt(int descriptor, int level, int name, void* value, socklen_t* size) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(getsockopt)(descriptor, level, name, value, size);
  return result_of(as_socket(file) ? as_socket(file)->get_option(level, name, value, size)
                                   : -ENOTSOCK);
}

int shutdown(int descriptor, int how) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(shutdown)(descriptor, how);
  return result_of(as_socket(file) ? as_socket(file)->shutdown(how) : -ENOTSOCK);
}

ssize_t recv(int descriptor, void* to, std::size_t n, int flags) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(recv)(descriptor, to, n, flags);
  const iovec part{to, n};
  if (!as_socket(file)) return read_file(*file, {&part, 1});
  return receive(*as_socket(file), {&part, 1}, flags);
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's
ssize_t __recv_chk(int descriptor, void* to, std::size_t n, std::size_t, int flags) {
  return recv(descriptor, to, n, flags);
}

ssize_t recvfrom(int descriptor, void* to, std::size_t n, int flags, sockaddr* address,
                 socklen_t* size) {
  using namespace lockstep::testing::detail;
  if (!simulated(descriptor))
    return LOCKSTEP_NEXT(recvfrom)(descriptor, to, n, flags, address, size);
  return recv(descriptor, to, n, flags);
}

ssize_t recvmsg(int descriptor, msghdr* message, int flags) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(recvmsg)(descriptor, message, flags);
  const std::span<const iovec> parts(message->msg_iov, message->msg_iovlen);
  message->msg_namelen = 0;
  message->msg_controllen = 0;
  message->msg_flags = 0;
  return as_socket(file) ? receive(*as_socket(file), parts, flags) : read_file(*file, parts);
}

ssize_t send(int descriptor, const void* from, std::size_t n, int flags) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(send)(descriptor, from, n, flags);
  const iovec part{const_cast<void*>(from), n};
  return as_socket(file) ? send_all(*as_socket(file), {&part, 1}, flags)
                         : write_file(*file, {&part, 1});
}

ssize_t sendto(int descriptor, const void* from, std::size_t n, int flags, const sockaddr* address,
               socklen_t size) {
  using namespace lockstep::testing::detail;
  if (!simulated(descriptor))
    return LOCKSTEP_NEXT(sendto)(descriptor, from, n, flags, address, size);
  return send(descriptor, from, n, flags);
}

ssize_t sendmsg(int descriptor, const msghdr* message, int flags) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(sendmsg)(descriptor, message, flags);
  const std::span<const iovec> parts(message->msg_iov, message->msg_iovlen);
  return as_socket(file) ? send_all(*as_socket(file), parts, flags) : write_file(*file, parts);
}

int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(getaddrinfo)(name, service, hints, found);
  addrinfo numeric = hints != nullptr ? *hints : addrinfo{};
  const bool only_numbers = (numeric.ai_flags & AI_NUMERICHOST) != 0;
  numeric.ai_flags |= AI_NUMERICHOST;
  const std::string address =
      name == nullptr || only_numbers ? std::string() : address_of_name(name);
  const int error = LOCKSTEP_NEXT(getaddrinfo)(address.empty() ? name : address.c_str(), service,
                                               &numeric, found);
  return error;
}

int getifaddrs(ifaddrs** first) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(getifaddrs)(first);
  auto* const both = new Interface[2];
  const auto fill = [](Interface& to, const char* name, std::uint32_t ip, std::uint32_t mask,
                       unsigned flags) {
    std::strcpy(to.name, name);
    to.address = to_sockaddr({ip, 0});
    to.mask = to_sockaddr({mask, 0});
    to.entry.ifa_name = to.name;
    to.entry.ifa_flags = IFF_UP | IFF_RUNNING | flags;
    to.entry.ifa_addr = reinterpret_cast<sockaddr*>(&to.address);
    to.entry.ifa_netmask = reinterpret_cast<sockaddr*>(&to.mask);
  };
  fill(both[0], "lo", 0x7f000001u, 0xff000000u, IFF_LOOPBACK);
  fill(both[1], "eth0", SimNetwork::address_of(this_thread->process->rank), 0xffff0000u,
       IFF_BROADCAST);
  both[0].entry.ifa_next = &both[1].entry;
  *first = &both[0].entry;
  return 0;
}

void freeifaddrs(ifaddrs* first) noexcept {
  using namespace lockstep::testing::detail;
  static_assert(offsetof(Interface, entry) == 0);
  if (!this_thread) return LOCKSTEP_NEXT(freeifaddrs)(first);
  delete[] reinterpret_cast<Interface*>(first);
}

int gethostname(char* name, std::size_t size) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(gethostname)(name, size);
  const std::string own = "host" + std::to_string(this_thread->process->rank);
  if (size <= own.size()) return result_of(-ENAMETOOLONG);
  std::memcpy(name, own.c_str(), own.size() + 1);
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
