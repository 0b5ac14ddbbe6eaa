/// \file
/// Strangers: connections that do not belong to the job. They are refused without an effect on it.
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <catch2/catch_test_macros.hpp>
#include <future>
#include <iterator>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/cluster/network/listener.hpp"
#include "lockstep/cluster/network/psk.hpp"
#include "lockstep/cluster/network/source_allowlist.hpp"
#include "lockstep/cluster/network/stranger_log.hpp"
#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;
using lockstep::detail::FrameWriter;
using lockstep::detail::Hello;

namespace {

const std::string http = "GET / HTTP/1.1\r\nHost: chief\r\n\r\n";
/// The beginning of a TLS 1.2 ClientHello.
const std::string tls_hello("\x16\x03\x01\x00\xC8\x01\x00\x00\xC4\x03\x03", 11);

lockstep::Secret secret(char c = 's') {
  return lockstep::Secret("0123456789abcdef" + std::string(16, c));
}

/// Strangers of each kind while a job starts and runs.
void visit(std::uint16_t port) {
  std::mt19937 random{7};
  std::list<Stranger> hanging;
  for (int i = 0; i < 40; ++i) {
    {
      const Stranger scan(port);
    }
    Stranger(port).send(http);
    Stranger(port).send(tls_hello);
    std::string bytes(2000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    Stranger(port).send(bytes);
    Stranger(port).send("LKS1" + bytes);
    hanging.emplace_back(port);
    if (i % 2) hanging.back().send("L");
    if (i % 3 == 0) hanging.back().send("LKS1");
  }
}

}  // namespace

TEST_CASE("strangers of any kind do not keep a job from starting and running") {
  const Deadline deadline(60s);
  for (const bool secured : {false, true}) {
    CAPTURE(secured);
    Lines lines;
    const auto port = free_port();
    const auto make = [&](std::size_t rank) {
      auto o = options(rank, 3, port, lines);
      if (secured) o.secret = secret();
      return std::async(std::launch::async, [o] { return join(o); });
    };
    auto chief = make(0);
    std::this_thread::sleep_for(200ms);
    std::list<Stranger> crowd;
    for (int i = 0; i < 200; ++i) crowd.emplace_back(port);
    visit(port);
    auto one = make(1);
    visit(port);
    auto two = make(2);
    std::vector<Member> members;
    for (auto* future : {&chief, &one, &two}) members.push_back(future->get());
    std::thread visitor([&] { visit(port); });
    in_each(members, [](Rendezvous& job) {
      for (int i = 0; i < 50; ++i) job.barrier("work", 5s);
    });
    visitor.join();
    for (Member& member : members) CHECK_FALSE(member->verdict());
    // At most one line per second and source.
    CHECK(lines.count() < 15);
    CHECK(lines.contain("a connection from 127.0.0.1 "));
    leave_all(members);
  }
}

namespace {

/// The client's side of a TLS handshake, in memory: its messages travel when the test wants.
class SlowClient {
 public:
  explicit SlowClient(lockstep::detail::PskContext& context)
      : ssl_(::SSL_new(context.tls().native_handle()), &::SSL_free) {
    ::SSL_set_connect_state(ssl_.get());
    ::SSL_set_bio(ssl_.get(), ::BIO_new(::BIO_s_mem()), ::BIO_new(::BIO_s_mem()));
  }
  /// Continues with `input`. \return the bytes to send.
  std::string answer(std::string_view input) {
    ::BIO_write(::SSL_get_rbio(ssl_.get()), input.data(), static_cast<int>(input.size()));
    ::SSL_do_handshake(ssl_.get());
    std::string output(4096, '\0');
    const int n = ::BIO_read(::SSL_get_wbio(ssl_.get()), output.data(), 4096);
    output.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return output;
  }
  bool is_done() const { return ::SSL_is_init_finished(ssl_.get()) == 1; }

 private:
  std::unique_ptr<SSL, decltype(&::SSL_free)> ssl_;
};

}  // namespace

TEST_CASE("strangers do not keep out a worker whose handshake takes long") {
  using namespace lockstep::detail;
  using Side = PskContext::Side;
  const Deadline deadline(60s);
  PskContext server(Side::server, secret(), ""), client(Side::client, secret(), "job");
  asio::io_context io;
  std::promise<void> proved;
  const auto refuse = [](const std::shared_ptr<Connection>&, const Hello&) {};
  Listener listener(io, &server, 30s, SourceAllowlist({}, true), refuse, [](std::string_view) {});
  listener.hand_over_proved([&](const std::shared_ptr<Connection>&) { proved.set_value(); });
  REQUIRE_FALSE(listener.listen({asio::ip::address_v4::loopback(), 0}, 1000));
  std::thread thread([&] { io.run(); });
  const auto port = listener.port();
  Stranger worker(port);
  SlowClient handshake(client);
  worker.send(handshake.answer(""));
  // From the same source, as through one NAT: silent ones before the server has read that message,
  // then ones that begin a handshake.
  std::list<Stranger> strangers;
  for (int i = 0; i < 40; ++i) strangers.emplace_back(port);
  CHECK(strangers.front().was_closed());
  const std::string flight = worker.read_some();
  CHECK_FALSE(flight.empty());
  for (int i = 0; i < 40; ++i) strangers.emplace_back(port).send(tls_hello);
  CHECK(std::next(strangers.begin(), 40)->was_closed());
  worker.send(handshake.answer(flight));
  CHECK(handshake.is_done());
  CHECK(proved.get_future().wait_for(10s) == std::future_status::ready);
  asio::post(io, [&] { listener.close(); });
  thread.join();
}

TEST_CASE("a connection that stays silent or is too slow is closed after two seconds") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  auto chief = std::async(std::launch::async, [&] {
    return sentence<PeerLost>([&] { join(options(0, 2, port, lines, 5000ms)); });
  });
  std::this_thread::sleep_for(200ms);
  const auto began = Clock::now();
  Stranger silent(port), slow(port);
  std::thread drip([&] {
    for (int i = 0; i < 20; ++i) {
      if (!slow.send(std::string_view("LKS1\xFF\x01\0\0\x01\0LLLLLLLLLL", 20)
                         .substr(static_cast<std::size_t>(i), 1)))
        break;
      std::this_thread::sleep_for(200ms);
    }
  });
  CHECK(silent.was_closed());
  drip.join();
  CHECK(slow.was_closed());
  CHECK(Clock::now() - began > 1900ms);
  CHECK(Clock::now() - began < 6s);
  CHECK(chief.get().find("rank 1 did not join") == 0);
}

TEST_CASE("invalid frames end the connection at once") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  auto chief = std::async(std::launch::async, [&] {
    return sentence<PeerLost>([&] { join(options(0, 2, port, lines, 4000ms)); });
  });
  std::this_thread::sleep_for(200ms);
  const std::string wrong[] = {
      http,
      std::string("LKS1\x00\x00\x00\x00", 8),                           // too short for a type
      std::string("LKS1\xFF\xFF\xFF\x7F", 8),                           // 2 GiB
      std::string("LKS1\x02\x00\x00\x00\x63\x00", 10),                  // unknown type
      "LKS1" + lockstep::detail::frame(lockstep::detail::Heartbeat{}),  // not a Hello
      std::string("LKS1\x0A\x00\x00\x00\x01\x00\xFF\xFF\xFF\xFF    ", 18),
  };
  for (const std::string& bytes : wrong) {
    const auto began = Clock::now();
    Stranger stranger(port);
    REQUIRE(stranger.connected());
    stranger.send(bytes);
    CHECK(stranger.was_closed());
    CHECK(Clock::now() - began < 1900ms);  // a silent one has two seconds
  }
  chief.get();
}

TEST_CASE("the job id of a stranger cannot forge log lines") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  auto chief = std::async(std::launch::async, [&] {
    return sentence<PeerLost>([&] { join(options(0, 2, port, lines, 1500ms)); });
  });
  std::this_thread::sleep_for(200ms);
  Stranger stranger(port);
  stranger.send("LKS1" + lockstep::detail::frame(Hello{"x\nerror: \x1b[31mforged", true, 1, {}}));
  CHECK(stranger.read_all().find("belongs to the job") != std::string::npos);
  chief.get();
  CHECK(lines.contain("\"x\\x0aerror: \\x1b[31mforged\""));
  CHECK(lines.count() == 1);
}

TEST_CASE("a worker of another job, or for an occupied rank, is refused alone") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  const auto make = [&](std::size_t rank, const char* job) {
    auto o = options(rank, 3, port, lines);
    o.cluster.job_id = job;
    return o;
  };
  auto chief = std::async(std::launch::async, [&] { return join(make(0, "today")); });
  auto one = std::async(std::launch::async, [&] { return join(make(1, "today")); });
  std::this_thread::sleep_for(500ms);
  using lockstep::ClusterError;
  const auto stale = sentence<ClusterError>([&] { join(make(2, "yesterday")); });
  CHECK(stale.find("belongs to the job \"yesterday\", but the chief runs the job \"today\"") !=
        std::string::npos);
  const auto second = sentence<ClusterError>([&] { join(make(1, "today")); });
  CHECK(second.find("claims a rank that rank 1 (127.0.0.1:") != std::string::npos);
  const auto usurper = sentence<lockstep::Error>([&] { join(make(0, "today")); });
  CHECK(usurper.find("is in use by another process") != std::string::npos);
  std::vector<Member> members;
  members.push_back(nullptr);
  members.push_back(nullptr);
  members.push_back(join(make(2, "today")));
  members[0] = chief.get();
  members[1] = one.get();
  const auto late = sentence<ClusterError>([&] { join(make(2, "today")); });
  CHECK(late.find("claims a rank that rank 2") != std::string::npos);
  CHECK(late.find("; give each process its own rank") != std::string::npos);
  in_each(members, [](Rendezvous& job) { job.barrier("work", 5s); });
  leave_all(members);
}

TEST_CASE("with the same secret a job works, and without it every connection is refused") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  const auto make = [&](std::size_t rank, lockstep::Secret s, milliseconds limit = 20s) {
    auto o = options(rank, 3, port, lines, limit);
    o.cluster.job_id = "job";
    o.secret = std::move(s);
    return o;
  };
  auto chief = std::async(std::launch::async, [&] { return join(make(0, secret())); });
  std::this_thread::sleep_for(300ms);
  using lockstep::ClusterError;
  const auto wrong = sentence<ClusterError>([&] { join(make(1, secret('t'), 300ms)); });
  CHECK(wrong.find("do not have the same secret") != std::string::npos);
  CHECK(lines.contain("did not prove that it has the job's secret"));
  const auto none = sentence<ClusterError>([&] { join(make(1, {})); });
  CHECK(none.find("the chief has a secret, but this process has none") != std::string::npos);
  auto other = make(1, secret());
  other.cluster.job_id = "another";
  CHECK(sentence<ClusterError>([&] { join(other); }).find("belongs to the job \"another\"") !=
        std::string::npos);
  auto one = std::async(std::launch::async, [&] { return join(make(1, secret())); });
  std::vector<Member> members;
  members.push_back(nullptr);
  members.push_back(nullptr);
  members.push_back(join(make(2, secret())));
  members[0] = chief.get();
  members[1] = one.get();
  in_each(members, [](Rendezvous& job) {
    job.set(std::to_string(job.rank()), std::string(60'000, 'x'));
    job.barrier("work", 5s);
    check_in_thread(job.get("1", 5s).size() == 60'000);
  });
  Access::kill(*members[1]);
  CHECK(members[2]->verdict(3s)->rank() == 1);
  leave_all(members);
}

TEST_CASE("a peer without TLS does not end a worker before its deadline, which reports it") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  const auto worker = [&](milliseconds limit) {
    auto o = options(1, 2, port, lines, limit);
    o.secret = secret();
    return o;
  };
  {
    auto chief = std::async(std::launch::async, [&] {
      return sentence<PeerLost>([&] { join(options(0, 2, port, lines, 2500ms)); });
    });
    std::this_thread::sleep_for(200ms);
    const auto began = Clock::now();
    const auto message = sentence<PeerLost>([&] { join(worker(1200ms)); });
    CAPTURE(message);
    CHECK(Clock::now() - began >= 1200ms);
    CHECK(message.find("could not be joined within 1.2 s: the peer there does not speak TLS: "
                       "another program has the port, or the chief has no secret and this process "
                       "has one") != std::string::npos);
    CHECK(lines.contain("retrying until the join deadline"));
    CHECK(lines.contain("speaks TLS, as a worker with a secret does, but the chief has none"));
    CHECK(chief.get().find("rank 1 did not join") == 0);
  }
  // Another program holds the port for a while; then the chief starts.
  const int web = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(web, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = loopback(port);
  REQUIRE(::bind(web, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(web, 5) == 0);
  auto member = std::async(std::launch::async, [&] { return join(worker(20s)); });
  for (int i = 0; i < 6; ++i) {
    const int guest = ::accept(web, nullptr, nullptr);
    char hello[4096];
    REQUIRE(::recv(guest, hello, sizeof hello, 0) > 0);
    if (i % 2 == 0) ::send(guest, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL);
    // The alert of a TLS 1.2 program: unsupported version.
    if (i == 5) ::send(guest, "\x15\x03\x03\x00\x02\x02\x46", 7, MSG_NOSIGNAL);
    ::close(guest);
  }
  ::close(web);
  auto o = options(0, 2, port, lines);
  o.secret = secret();
  std::vector<Member> members;
  members.push_back(join(o));
  members.push_back(member.get());
  leave_all(members);
  CHECK(lines.contain("the peer there does not speak TLS 1.3"));
  std::size_t warnings = 0;  // one per reason, despite other failures in between
  const std::string message = lines.text(), warning = "retrying until the join deadline";
  for (std::size_t at = 0; (at = message.find(warning, at)) != std::string::npos; ++at) ++warnings;
  CHECK(warnings == 3);
}

TEST_CASE("a worker that restarts at once waits for the next run of its job") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  const auto make = [&](std::size_t rank, milliseconds limit = 20s) {
    return std::async(std::launch::async,
                      [&, rank, limit] { return join(options(rank, 3, port, lines, limit)); });
  };
  std::vector<Member> members;
  {
    auto chief = make(0), one = make(1), two = make(2);
    for (auto* future : {&chief, &one, &two}) members.push_back(future->get());
  }
  Access::kill(*members[2]);
  REQUIRE(members[0]->verdict(5s));
  // The chief has a verdict but has not exited yet.
  const auto message = sentence<PeerLost>([&] { join(options(2, 3, port, lines, 700ms)); });
  CAPTURE(message);
  CHECK(message.find("could not be joined within 0.7 s: turned away: its job has failed") !=
        std::string::npos);
  auto two = make(2);
  std::this_thread::sleep_for(200ms);
  leave_all(members);
  auto chief = make(0), one = make(1);
  members.clear();
  for (auto* future : {&chief, &one, &two}) members.push_back(future->get());
  in_each(members, [](Rendezvous& job) { job.barrier("work", 5s); });
  leave_all(members);
}

TEST_CASE("strangers at many addresses do not flood the log") {
  lockstep::detail::StrangerLog log;
  const auto now = Clock::now();
  int lines = 0;
  for (int i = 0; i < 300; ++i)
    if (!log.line("10.0.0." + std::to_string(i), "was silent", now + milliseconds(i)).empty())
      ++lines;
  CHECK(lines == 5);
  CHECK(log.line("10.0.0.1", "was silent", now + 1500ms) ==
        "a connection from 10.0.0.1 was silent; 295 more from other sources were not logged");
}

TEST_CASE("without a secret only the hosts of the cluster may connect, and with one any host") {
  const Deadline deadline(60s);
  using asio::ip::make_address;
  using lockstep::detail::SourceAllowlist;
  lockstep::ResolvedCluster cluster;
  cluster.world_size = 3;
  cluster.cluster =
      lockstep::ClusterSpec().worker("10.0.0.1:1").worker("10.0.0.2:1").worker("[fd00::3]:1");
  SourceAllowlist allowlist(cluster, false);
  CHECK_FALSE(allowlist.allows(make_address("10.0.0.2")));  // not yet resolved
  allowlist.tick(Clock::now());
  for (const char* member : {"10.0.0.1", "10.0.0.2", "fd00::3", "::ffff:10.0.0.2"})
    CHECK(allowlist.allows(make_address(member)));
  for (const char* stranger : {"10.0.0.3", "127.0.0.1", "fd00::4", "::1"})
    CHECK_FALSE(allowlist.allows(make_address(stranger)));
  SourceAllowlist preferred(cluster, true);  // with a secret: the hosts are only preferred
  CHECK(preferred.allows(make_address("10.0.0.3")));
  CHECK_FALSE(preferred.describes(make_address("10.0.0.3")));
  preferred.tick(Clock::now());
  CHECK(preferred.describes(make_address("10.0.0.2")));
  CHECK_FALSE(preferred.describes(make_address("10.0.0.3")));
  cluster.bind = lockstep::BindAddress{"0.0.0.0", std::nullopt};
  CHECK(SourceAllowlist(cluster, false).allows(make_address("10.0.0.3")));
  cluster.bind.reset();
  cluster.cluster =
      lockstep::ClusterSpec().worker("127.0.0.1:1").worker("127.0.0.2:1").worker("localhost:1");
  CHECK(SourceAllowlist(cluster, false).allows(make_address("127.0.0.77")));
  CHECK_FALSE(SourceAllowlist(cluster, false).allows(make_address("10.0.0.1")));

  // A chief whose cluster has no host at 127.0.0.1 closes connections from there.
  Lines lines;
  const auto port = free_port();
  auto o = options(0, 2, port, lines, 1500ms);
  o.cluster.cluster = lockstep::ClusterSpec().worker("10.0.0.1:1").worker("10.0.0.2:1");
  auto chief = std::async(std::launch::async, [&] { return sentence<PeerLost>([&] { join(o); }); });
  std::this_thread::sleep_for(400ms);
  Stranger stranger(port);
  CHECK(stranger.was_closed());
  chief.get();
  CHECK(lines.contain("a connection from 127.0.0.1 is not from a host of the cluster"));
}
