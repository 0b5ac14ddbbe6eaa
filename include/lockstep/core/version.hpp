/// \file
/// The version of lockstep; the build reads the three numbers from this file.
#pragma once

#define LOCKSTEP_VERSION_MAJOR 0
#define LOCKSTEP_VERSION_MINOR 1
#define LOCKSTEP_VERSION_PATCH 0

/// The version as one number for comparisons: 1.2.3 is 10203.
/// \code
///   #if LOCKSTEP_VERSION_NUMBER >= 10203
/// \endcode
#define LOCKSTEP_VERSION_NUMBER \
  (LOCKSTEP_VERSION_MAJOR * 10000 + LOCKSTEP_VERSION_MINOR * 100 + LOCKSTEP_VERSION_PATCH)

#define LOCKSTEP_VERSION_TEXT_OF(major, minor, patch) #major "." #minor "." #patch
#define LOCKSTEP_VERSION_TEXT(major, minor, patch) LOCKSTEP_VERSION_TEXT_OF(major, minor, patch)
/// The version as text: "0.1.0".
#define LOCKSTEP_VERSION \
  LOCKSTEP_VERSION_TEXT(LOCKSTEP_VERSION_MAJOR, LOCKSTEP_VERSION_MINOR, LOCKSTEP_VERSION_PATCH)
