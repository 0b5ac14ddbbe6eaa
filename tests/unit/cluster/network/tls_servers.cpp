/// \file
/// TLS servers of other programs at the chief's address.
#include <signal.h>

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/write.hpp>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;
using lockstep::ClusterError;

namespace {

lockstep::Secret secret(char c = 's') {
  return lockstep::Secret("0123456789abcdef" + std::string(16, c));
}

/// A TLS server with a self-signed certificate, like a web server. Closes each connection after the
/// handshake, whether that succeeded or not.
class TlsServer {
 public:
  TlsServer(std::uint16_t port, const std::function<void(SSL_CTX*)>& change) {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"),
                                                                  &EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    REQUIRE(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
    REQUIRE(SSL_CTX_use_certificate(context_.get(), certificate.get()) == 1);
    REQUIRE(SSL_CTX_use_PrivateKey(context_.get(), key.get()) == 1);
    change(context_.get());
    const int on = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in address = loopback(port);
    REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(socket_, 5) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;
  ~TlsServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  int connections() const { return connections_; }

 private:
  void serve() {
    // OpenSSL writes to a worker that may have gone. Only in this thread: lockstep's must not raise it.
    sigset_t broken_pipe;
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
    for (int client; (client = ::accept(socket_, nullptr, nullptr)) >= 0; ++connections_) {
      const timeval limit{1, 0};
      ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context_.get()), &SSL_free);
      SSL_set_fd(tls.get(), client);
      SSL_accept(tls.get());
      ::shutdown(client, SHUT_WR);
      char rest[256];
      while (::recv(client, rest, sizeof rest, 0) > 0) {
      }
      ::close(client);
    }
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_server_method()),
                                                             &SSL_CTX_free};
  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::atomic<int> connections_{0};
  std::thread thread_;
};

int refuse_name(SSL*, int* alert, void*) {
  *alert = SSL_AD_UNRECOGNIZED_NAME;
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

TEST_CASE("a TLS server of another program does not end a joining worker") {
  struct Row {
    const char* name;
    std::function<void(SSL_CTX*)> change;
  };
  const Row rows[] = {
      {"a certificate", [](SSL_CTX*) {}},
      {"no TLS 1.3", [](SSL_CTX* c) { SSL_CTX_set_max_proto_version(c, TLS1_2_VERSION); }},
      {"another cipher", [](SSL_CTX* c) { SSL_CTX_set_ciphersuites(c, "TLS_AES_256_GCM_SHA384"); }},
      {"another curve", [](SSL_CTX* c) { SSL_CTX_set1_groups_list(c, "P-521"); }},
      {"a client's certificate",
       [](SSL_CTX* c) {
         SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
       }},
      {"its own host name",
       [](SSL_CTX* c) { SSL_CTX_set_tlsext_servername_callback(c, &refuse_name); }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const Deadline deadline(60s);
    Lines lines;
    const auto port = free_port();
    const auto make = [&](std::size_t rank, milliseconds limit = 20s) {
      auto o = options(rank, 2, port, lines, limit);
      o.secret = secret();
      return o;
    };
    std::future<Member> worker;
    {
      const TlsServer server(port, row.change);
      const auto message = sentence<PeerLost>([&] { join(make(1, 700ms)); });
      CAPTURE(message);
      CHECK(message.find("could not be joined within 0.7 s: the peer there ") != std::string::npos);
      CHECK(message.find("another program has the port") != std::string::npos);
      CHECK(lines.contain("retrying until the join deadline"));
      worker = std::async(std::launch::async, [&] { return join(make(1)); });
      for (const int before = server.connections(); server.connections() < before + 2;)
        std::this_thread::sleep_for(5ms);
    }
    std::vector<Member> members;  // the other program has exited, and the chief starts
    members.push_back(join(make(0)));
    members.push_back(worker.get());
    leave_all(members);
  }
}

TEST_CASE("alerts from the chief's address do not end a worker that joins later") {
  // Anyone there can send these bytes: a TLS record with illegal_parameter or decrypt_error.
  for (const char alert : {'\x2f', '\x33'}) {
    const Deadline deadline(60s);
    Lines lines;
    const auto port = free_port();
    auto o = options(1, 2, port, lines);
    o.secret = secret();
    std::future<Member> worker;
    {
      asio::io_context io;
      asio::ip::tcp::acceptor impostor(io, {asio::ip::address_v4::loopback(), port});
      worker = std::async(std::launch::async, [o] { return join(o); });
      for (int answers = 0; answers < 2; ++answers) {
        auto victim = impostor.accept();
        std::array<char, 4096> hello{};
        victim.read_some(asio::buffer(hello));
        asio::write(victim, asio::buffer(std::string{'\x15', '\x03', '\x03', 0, 2, 2, alert}));
      }
    }
    auto first = o;
    first.cluster.rank = 0;
    std::vector<Member> members;  // the impostor is gone, and the chief starts
    members.push_back(join(first));
    members.push_back(worker.get());
    CHECK(lines.contain("it does not have the same secret as this process"));
    leave_all(members);
  }
}

TEST_CASE("a worker with a wrong secret ends at its deadline with the reason") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  const auto make = [&](std::size_t rank, char c) {
    auto o = options(rank, 2, port, lines, c == 'w' ? 1000ms : 20000ms);
    o.secret = secret(c);
    return std::async(std::launch::async, [o] { return join(o); });
  };
  auto chief = make(0, 's');
  auto wrong = make(1, 'w');
  const auto message = sentence<ClusterError>([&] { wrong.get(); });
  CAPTURE(message);
  CHECK(message.find("do not have the same secret") != std::string::npos);
  auto right = make(1, 's');
  std::vector<Member> members;
  members.push_back(chief.get());
  members.push_back(right.get());
  leave_all(members);
}
