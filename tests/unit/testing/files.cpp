#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "lockstep/testing/run_workers.hpp"
#include "unit/testing/sockets.hpp"

namespace {

using namespace std::chrono_literals;
using lockstep::testing::run_workers;
using lockstep::testing::Worker;
using sockets::Socket;

}  // namespace

TEST_CASE("epoll reports an edge once, and a level as long as it lasts") {
  run_workers(1, [](Worker& worker) {
    const Socket set(::epoll_create1(0)), level(::eventfd(0, EFD_NONBLOCK)),
        edge(::eventfd(0, EFD_NONBLOCK));
    epoll_event event{EPOLLIN, {.fd = level.fd}};
    REQUIRE(::epoll_ctl(set.fd, EPOLL_CTL_ADD, level.fd, &event) == 0);
    event = {EPOLLIN | EPOLLET, {.fd = edge.fd}};
    REQUIRE(::epoll_ctl(set.fd, EPOLL_CTL_ADD, edge.fd, &event) == 0);
    epoll_event found[4];
    CHECK(::epoll_wait(set.fd, found, 4, 100) == 0);
    CHECK(worker.time() >= 100ms);
    std::jthread writer([&] {
      std::this_thread::sleep_for(1s);
      ::eventfd_write(level.fd, 1);
      ::eventfd_write(edge.fd, 1);
    });
    CHECK(::epoll_wait(set.fd, found, 4, -1) >= 1);
    writer.join();
    CHECK(::epoll_wait(set.fd, found, 4, 0) >= 1);
    CHECK(::epoll_wait(set.fd, found, 4, 0) == 1);
    CHECK(found[0].data.fd == level.fd);
    eventfd_t value = 0;
    CHECK(::eventfd_read(level.fd, &value) == 0);
    CHECK(::eventfd_read(level.fd, &value) == -1);
    CHECK(errno == EAGAIN);
    CHECK(::epoll_wait(set.fd, found, 4, 0) == 0);
    event = {EPOLLIN | EPOLLET, {.fd = edge.fd}};
    REQUIRE(::epoll_ctl(set.fd, EPOLL_CTL_MOD, edge.fd, &event) == 0);
    CHECK(::epoll_wait(set.fd, found, 4, 0) == 1);
  });
}

TEST_CASE("a timer expires in virtual time") {
  run_workers(1, [](Worker& worker) {
    const Socket timer(::timerfd_create(CLOCK_MONOTONIC, 0));
    const itimerspec time{{2, 0}, {3, 0}};
    REQUIRE(::timerfd_settime(timer.fd, 0, &time, nullptr) == 0);
    std::uint64_t count = 0;
    CHECK(::read(timer.fd, &count, sizeof count) == sizeof count);
    CHECK((count == 1 && worker.time() >= 3s && worker.time() < 3001ms));
    std::this_thread::sleep_for(5s);
    CHECK(::read(timer.fd, &count, sizeof count) == sizeof count);
    CHECK(count == 2);
  });
}

TEST_CASE("a pipe blocks and ends") {
  run_workers(1, [](Worker&) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    std::jthread writer([end = ends[1]] {
      const std::string text(200'000, 'x');
      for (std::size_t done = 0; done < text.size();)
        done += static_cast<std::size_t>(::write(end, text.data() + done, text.size() - done));
      ::close(end);
    });
    const Socket reader(ends[0]);
    std::size_t sum = 0;
    char part[1000];
    for (ssize_t n; (n = ::read(reader.fd, part, sizeof part)) > 0;)
      sum += static_cast<std::size_t>(n);
    CHECK(sum == 200'000);
  });
}

TEST_CASE("files are real, and a killed worker holds no lock") {
  const auto path =
      std::filesystem::temp_directory_path() / ("lockstep-" + std::to_string(::getpid()) + ".lock");
  std::string order;
  run_workers(3,
              [&](Worker& worker) {
                std::this_thread::sleep_for(worker.rank() * 100ms);
                const Socket file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
                CHECK(::flock(file.fd, LOCK_EX | LOCK_NB) == (worker.rank() == 0 ? 0 : -1));
                REQUIRE(::flock(file.fd, LOCK_EX) == 0);
                order += std::to_string(worker.rank());
                std::this_thread::sleep_for(1s);
                order += std::to_string(worker.rank());
              },
              {.faults = {{500ms, lockstep::testing::kill(0)}}});
  std::filesystem::remove(path);
  CHECK((order == "01122" || order == "02211"));
}
