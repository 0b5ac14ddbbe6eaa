// A switch between tunnel devices, one for each host 10.78.0.1, 10.78.0.2, ...: passes packets on at the
// bandwidth of a host's cable, in both directions, and late by a delay. It drops none.
//
//   slow_switch SECONDS_OF_DELAY BYTES_A_SECOND fair|fifo FD...   the devices' descriptors, by host
//
//     host --> queue of each receiver --in turn--> cable --> delay --> cable of the receiver --> host
//
// fair: what waits for a cable leaves in turn for each receiver, and packets without data, such as
// acknowledgements, first, as with the queueing discipline fq_codel. fifo: in the order of arrival.
// forecast_error.py compiles and starts it.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Bytes = std::vector<char>;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Event {
  double due;
  std::uint64_t number;
  std::size_t host;
  bool is_free;  ///< the host's cable; else `bytes` arrive
  Bytes bytes{};
};
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return a.due != b.due ? a.due > b.due : a.number > b.number;
  }
};

struct Host {
  std::vector<std::deque<Bytes>> queues;  ///< by receiver; all in the first one without fairness
  std::size_t next = 0;
  bool is_busy = false;
  double arrives = 0;  ///< when the cable is free for the next packet to this host
};

class Switch {
 public:
  Switch(double delay, double rate, bool is_fair, std::vector<pollfd> devices)
      : delay_(delay), rate_(rate), is_fair_(is_fair), devices_(std::move(devices)) {
    hosts_.resize(devices_.size());
    for (Host& host : hosts_) host.queues.resize(devices_.size());
  }

  void run() {
    while (true) {
      timespec time{1, 0};
      if (!events_.empty()) {
        const double left = std::max(0.0, events_.top().due - now());
        time.tv_sec = static_cast<time_t>(left);
        time.tv_nsec = static_cast<long>(1e9 * (left - static_cast<double>(time.tv_sec)));
      }
      (void)ppoll(devices_.data(), devices_.size(), &time, nullptr);
      for (std::size_t host = 0; host < devices_.size(); ++host) {
        if ((devices_[host].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return;
        if ((devices_[host].revents & POLLIN) != 0) read_from(host);
      }
      while (!events_.empty() && events_.top().due <= now()) {
        const Event event = std::move(const_cast<Event&>(events_.top()));
        events_.pop();
        if (event.is_free)
          begin(event.host, event.due);  // as if this were done in time
        else
          (void)!write(devices_[event.host].fd, event.bytes.data(), event.bytes.size());
      }
    }
  }

 private:
  static std::size_t receiver(const Bytes& p) {
    return static_cast<unsigned char>(p[19]) - std::size_t{1};
  }
  static constexpr std::size_t without_data = 120;

  void read_from(std::size_t host) {
    char buffer[65536];
    for (int i = 0; i < 64; ++i) {
      const ssize_t size = read(devices_[host].fd, buffer, sizeof buffer);
      if (size <= 0) return;
      const char network[] = {10, 78, 0};
      if (size < 20 || (buffer[0] & 0xF0) != 0x40 || std::memcmp(buffer + 16, network, 3) != 0)
        continue;
      Bytes packet(buffer, buffer + size);
      const std::size_t to = receiver(packet);
      if (to >= hosts_.size()) continue;
      if (is_fair_ && packet.size() < without_data) {
        events_.push({now() + delay_, number_++, to, false, std::move(packet)});
        continue;
      }
      hosts_[host].queues[is_fair_ ? to : 0].push_back(std::move(packet));
      if (!hosts_[host].is_busy) begin(host, now());
    }
  }

  /// Sends the next packet of a host whose cable is free.
  void begin(std::size_t index, double when) {
    Host& host = hosts_[index];
    host.is_busy = false;
    for (std::size_t i = 0; i < host.queues.size(); ++i) {
      std::deque<Bytes>& queue = host.queues[host.next++ % host.queues.size()];
      if (queue.empty()) continue;
      Bytes packet = std::move(queue.front());
      queue.pop_front();
      const double takes = static_cast<double>(packet.size()) / rate_, leaves = when + takes;
      const std::size_t to = receiver(packet);
      // A packet passes both cables at the same time, as through a switch that cuts through.
      hosts_[to].arrives = std::max(leaves + delay_, hosts_[to].arrives + takes);
      events_.push({hosts_[to].arrives, number_++, to, false, std::move(packet)});
      events_.push({leaves, number_++, index, true});
      host.is_busy = true;
      return;
    }
  }

  const double delay_, rate_;
  const bool is_fair_;
  std::vector<pollfd> devices_;
  std::vector<Host> hosts_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t number_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_TIMERSLACK, 1UL);
  (void)setpriority(PRIO_PROCESS, 0, -15);
  std::vector<pollfd> devices;
  for (int i = 4; i < argc; ++i) devices.push_back({std::atoi(argv[i]), POLLIN, 0});
  Switch(std::atof(argv[1]), std::atof(argv[2]), std::string_view(argv[3]) == "fair", devices)
      .run();
}
