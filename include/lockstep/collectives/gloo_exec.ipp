#pragma once

#include "lockstep/collectives/gloo_exec.hpp"

#include <fcntl.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace lockstep::detail {

bool same_address(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    const auto &x = reinterpret_cast<const sockaddr_in&>(a),
               &y = reinterpret_cast<const sockaddr_in&>(b);
    return x.sin_port == y.sin_port && x.sin_addr.s_addr == y.sin_addr.s_addr;
  }
  const auto &x = reinterpret_cast<const sockaddr_in6&>(a),
             &y = reinterpret_cast<const sockaddr_in6&>(b);
  return a.ss_family == AF_INET6 && x.sin6_port == y.sin6_port &&
         std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
}

void for_each_descriptor(const std::function<void(int)>& f) {
  std::error_code ignored;
  using Files = std::filesystem::directory_iterator;
  for (Files entry("/proc/self/fd", ignored); entry != Files(); entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    int file = -1;
    std::from_chars(name.data(), name.data() + name.size(), file);
    f(file);
  }
}

void set_epoll_cloexec(int watched) {
  for_each_descriptor([&](int file) {
    const std::string name = std::to_string(file);
    std::error_code ignored;
    const auto link = std::filesystem::read_symlink("/proc/self/fd/" + name, ignored);
    if (link != "anon_inode:[eventpoll]") return;
    std::ifstream info("/proc/self/fdinfo/" + name);
    for (std::string word; info >> word;)
      if (int target = -1; word == "tfd:" && info >> target && target == watched)
        fcntl(file, F_SETFD, FD_CLOEXEC);
  });
}

void set_cloexec(const std::vector<sockaddr_storage>& addresses) {
  const auto is_one = [&](int file, decltype(getsockname)* end) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    return end(file, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
           std::any_of(addresses.begin(), addresses.end(),
                       [&](const sockaddr_storage& a) { return same_address(a, address); });
  };
  for_each_descriptor([&](int file) {
    if (is_one(file, getsockname) || is_one(file, getpeername)) fcntl(file, F_SETFD, FD_CLOEXEC);
  });
}

}  // namespace lockstep::detail
