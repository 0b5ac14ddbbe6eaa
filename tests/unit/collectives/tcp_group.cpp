#include "lockstep/collectives/tcp_group.hpp"

#include <sys/socket.h>

#include <array>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "contract.hpp"
#include "tcp_places.hpp"

namespace {

using contract::run_members;
using lockstep::SumOrder;
using lockstep::TcpGroup;
using lockstep::detail::Topology;
using namespace std::chrono_literals;
using tcp_test::Places;

using Plain = Places<SumOrder::ranks, Topology::direct, false>;
using Sealed = Places<SumOrder::tree, Topology::direct, true>;
struct Chain : Places<SumOrder::ranks, Topology::tree, false> {
  static constexpr bool sees_neighbors = true;
  using Places::Places;
};
struct Tree : Places<SumOrder::tree, Topology::tree, true> {
  static constexpr bool sees_neighbors = true;
  using Places::Places;
};
using Striped = Places<SumOrder::ranks, Topology::direct, false, 3, 20>;

}  // namespace

TEMPLATE_TEST_CASE("TcpGroup keeps the contract of a collective", "", Plain, Sealed, Chain, Tree,
                   Striped) {
  contract::check_collective<TestType>();
}
