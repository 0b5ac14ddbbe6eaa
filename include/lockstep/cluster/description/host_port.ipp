#pragma once

#include "lockstep/cluster/description/host_port.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {

std::string to_string(const HostPort& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return format_text("{}{}{}{}", brackets ? "[" : "", address.host, brackets ? "]:" : ":",
                     address.port);
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host.ends_with(".localhost") || host == "::1" ||
         (host.starts_with("127.") && std::count(host.begin(), host.end(), '.') == 3 &&
          std::all_of(host.begin(), host.end(),
                      [](char c) { return c == '.' || detail::is_digit(c); }));
}

namespace detail {

std::optional<std::string> ipv6(std::string_view text) {
  const auto percent = std::min(text.find('%'), text.size());
  const std::string_view zone = text.substr(percent);
  if (zone.size() == 1 || zone.size() > 17 ||
      !std::all_of(zone.begin() + (zone.empty() ? 0 : 1), zone.end(), [](char c) {
        return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
               c == '.' || c == '_';
      }))
    return std::nullopt;
  in6_addr address{};
  std::array<char, INET6_ADDRSTRLEN> spelling{};
  if (inet_pton(AF_INET6, std::string(text.substr(0, percent)).c_str(), &address) != 1 ||
      !inet_ntop(AF_INET6, &address, spelling.data(), spelling.size()))
    return std::nullopt;
  return std::string(spelling.data()).append(zone);
}

/// The fault of a host that is not an IPv6 address; nullopt if it is valid.
inline std::optional<std::string> host_fault(std::string_view host) {
  if (host.size() > max_host_length)
    return format_text("has a host name of {} characters; the maximum is {}", host.size(),
                       max_host_length);
  const bool numeric =
      std::all_of(host.begin(), host.end(), [](char c) { return is_digit(c) || c == '.'; });
  in_addr address{};
  if (numeric && inet_pton(AF_INET, std::string(host).c_str(), &address) != 1)
    return "is not a valid IPv4 address; write four numbers from 0 to 255, separated by dots, "
           "without leading zeros";
  std::size_t label = 0;
  for (const char c : host) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == '.') {
      if (label == 0) return "has a host name with an empty label; remove the extra dot";
      label = 0;
    } else if (!letter && !is_digit(c) && c != '-' && c != '_') {
      return format_text(
          "has {} in its host name; a host name has letters, digits, '-', '_' and '.'",
          quote(std::string_view(&c, 1)));
    } else if (c == '-' && label == 0) {
      return "has a host name with a label that begins with '-'; write the machine's host name";
    } else if (++label > 63) {
      return "has a host name with a label of more than 63 characters; DNS allows at most 63";
    }
  }
  return std::nullopt;
}

std::string checked_host(std::string_view host, const std::string& subject) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const bool colon = host.find(':') != std::string_view::npos;
  if (host.empty()) throw ClusterError("{} has no host; write its name or address", subject);
  std::string result(host);
  if (colon) {
    const auto address = ipv6(host);
    if (!address)
      throw ClusterError("{} is not a valid IPv6 address; write it as in \"[fd00::1]:12345\"",
                         subject);
    result = *address;
  } else if (const auto fault = host_fault(host)) {
    throw ClusterError("{} {}", subject, *fault);
  }
  std::transform(result.begin(), result.end(), result.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return result;
}

std::uint16_t checked_port(std::string_view port, const std::string& subject) {
  if (port.empty() || !std::all_of(port.begin(), port.end(), is_digit))
    throw ClusterError("{} has the port {}, which is not a number; write a port from 1 to 65535",
                       subject, quote(port));
  if (port.size() > 1 && port.front() == '0')
    throw ClusterError("{} has the port {} with a leading zero; remove the zero", subject,
                       quote(port));
  const auto number = whole_number<std::uint16_t>(port);
  if (!number || *number == 0)
    throw ClusterError("{} has the port {}, which is out of range; write a port from 1 to 65535",
                       subject, quote(port));
  return *number;
}

/// Refuses an entry with several colons, with the spelling that was probably meant: "::1:12345" may
/// be an address and a port, or an address alone.
[[noreturn]] inline void refuse_bare_ipv6(std::string_view entry, const std::string& subject) {
  const auto colon = entry.rfind(':');
  const std::string_view host = entry.substr(0, colon), port = entry.substr(colon + 1);
  // A group of an IPv6 address has at most four digits, so a longer last part is a port.
  const bool meant_port = port.size() > 4 || host.ends_with(':') || !ipv6(entry);
  if (meant_port && ipv6(host) && whole_number<std::uint16_t>(port))
    throw ClusterError("{} is an IPv6 address without brackets; write \"[{}]:{}\"", subject, host,
                       port);
  if (ipv6(entry))
    throw ClusterError("{} has no port, and an IPv6 address needs brackets; write \"[{}]:12345\"",
                       subject, entry);
  throw ClusterError("{} has more than one colon; write \"host:port\"", subject);
}

}  // namespace detail

HostPort parse_host_port(std::string_view entry, std::string_view where) {
  using detail::quote;
  const std::string subject = format_text("{} {}", where, quote(entry));
  const auto refuse = [&subject](std::string_view fact, std::string_view remedy) {
    throw ClusterError("{} {}; write {}", subject, fact, quote(remedy));
  };
  if (entry.empty()) throw ClusterError("{} is empty; write \"host:port\"", subject);
  if (entry.size() > 2 * detail::max_host_length)
    throw ClusterError("{} has {} characters; write \"host:port\"", subject, entry.size());
  constexpr std::string_view blanks = " \t\r\n";
  if (const auto first = entry.find_first_not_of(blanks);
      first == std::string_view::npos || entry.find_first_of(blanks) != std::string_view::npos) {
    if (first == std::string_view::npos) refuse("is blank", "host:port");
    const auto trimmed = entry.substr(first, entry.find_last_not_of(blanks) + 1 - first);
    refuse("contains white space",
           trimmed.find_first_of(blanks) == std::string_view::npos ? trimmed : "host:port");
  }
  if (const auto scheme = entry.find("://"); scheme != std::string_view::npos)
    refuse("begins with a URL scheme, which an address does not have", entry.substr(scheme + 3));
  if (const auto at = entry.rfind('@'); at != std::string_view::npos)
    refuse("has a user name, which an address does not have", entry.substr(at + 1));

  std::string_view host = entry, port;
  if (entry.front() == '[') {
    const auto close = entry.find(']');
    if (close == std::string_view::npos)
      throw ClusterError("{} has a '[' without ']'; write \"[address]:port\"", subject);
    host = entry.substr(0, close + 1);
    const auto rest = entry.substr(close + 1);
    if (rest.empty()) refuse("has no port", format_text("{}:12345", entry));
    if (rest.front() != ':')
      throw ClusterError("{} has no ':' after its ']'; write \"[address]:port\"", subject);
    port = rest.substr(1);
    if (host.find(':') == std::string_view::npos)
      refuse("has brackets, which only IPv6 needs",
             format_text("{}{}", host.substr(1, close - 1), rest));
  } else {
    const auto colon = entry.find(':');
    if (colon == std::string_view::npos) {
      if (std::all_of(entry.begin(), entry.end(), detail::is_digit))
        refuse("is only a port", format_text("host:{}", entry));
      refuse("has no port", format_text("{}:12345", entry));
    }
    if (entry.rfind(':') != colon) detail::refuse_bare_ipv6(entry, subject);
    host = entry.substr(0, colon);
    port = entry.substr(colon + 1);
  }
  if (host.empty()) refuse("has no host", format_text("host{}", entry));
  if (port.empty()) refuse("has no port", format_text("{}12345", entry));
  HostPort result{detail::checked_host(host, subject), detail::checked_port(port, subject)};
  if (result.host == "0.0.0.0" || result.host == "::")
    throw ClusterError(
        "{} is a wildcard address; write the address that the other machines reach, and set "
        "LOCKSTEP_BIND={} to listen on all interfaces",
        subject, result.host);
  return result;
}

}  // namespace lockstep
