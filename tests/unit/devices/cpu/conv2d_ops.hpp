/// \file
/// Generated convolutions, and what compares them.
#pragma once

#include "compare.hpp"
#include "support/convolutions.hpp"
