/// \file
/// Generated convolutions and the functions that compare them.
#pragma once

#include "compare.hpp"
#include "support/convolutions.hpp"
