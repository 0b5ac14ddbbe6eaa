#include "lockstep/cluster/elastic/contact.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>

using lockstep::detail::Accepted;
using lockstep::detail::Contact;
using lockstep::detail::milliseconds;
using lockstep::detail::Notice;
using lockstep::detail::Standing;

TEST_CASE(
    "what is known of a process is its newest notice, and that of another process replaces it") {
  const Contact::Time began(std::chrono::hours(1));
  Contact contact;
  const auto note = [&](std::uint64_t incarnation, std::uint64_t serial, auto message,
                        milliseconds at) {
    return contact.note({{1, incarnation}, serial, message}, began + at);
  };
  CHECK(note(7, 2, Notice{.standing = Standing::fresh}, milliseconds(0)));
  CHECK(contact.is_fresh(began + milliseconds(999)));
  CHECK_FALSE(contact.is_fresh(began + milliseconds(1000)));
  CHECK_FALSE(note(7, 1, Notice{.standing = Standing::left}, milliseconds(10)));  // overtaken
  CHECK(note(7, 1, Accepted{}, milliseconds(20)));  // votes count in any order
  CHECK(contact.heard == began + milliseconds(20));
  CHECK(contact.first_heard == began);
  CHECK(note(7, 3, Notice{.standing = Standing::running}, milliseconds(30)));
  CHECK_FALSE(contact.is_fresh(began + milliseconds(30)));
  CHECK(note(8, 1, Notice{.standing = Standing::fresh}, milliseconds(40)));
  CHECK(contact.first_heard == began + milliseconds(40));
  contact.excuse(milliseconds(500), began + milliseconds(700));
  CHECK(contact.heard == began + milliseconds(540));
  contact.excuse(milliseconds(500), began + milliseconds(700));
  CHECK(contact.heard == began + milliseconds(700));
}
