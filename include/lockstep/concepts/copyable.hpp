/// \file
/// What declarations and pipelines have in common.
#pragma once

#include <type_traits>

namespace lockstep {

/// An object that can be copied and assigned: std::copyable at a tenth of its price to compile,
/// which each user of lockstep would pay once a type.
template <class T>
concept Copyable =
    std::is_object_v<T> && std::is_copy_constructible_v<T> && std::is_copy_assignable_v<T>;

}  // namespace lockstep
