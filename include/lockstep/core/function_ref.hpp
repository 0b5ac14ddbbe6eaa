/// \file
/// References to functions, modelled on C++26's std::function_ref. Invariants: two pointers; a call
/// is one indirect call and allocates nothing.
#pragma once

#include <concepts>
#include <type_traits>

#include "lockstep/core/type_list.hpp"

namespace lockstep {

template <class Signature>
class FunctionRef;

/// A reference to any callable with signature `R(Args...)`, for use as a parameter. The callable
/// must outlive the reference. Unlike C++26's, it may be empty.
/// \code
///   void each(FunctionRef<void(int)> f);
///   each([&](int i) { sum += i; });
///   FunctionRef<void(int)> add(Constant<&Counter::add>{}, counter);   // a member function
/// \endcode
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  constexpr FunctionRef() = default;
  /// Refers to a function object, such as a lambda. A temporary is valid until the end of the full
  /// expression, that is, for the call it is an argument of. Wrap a plain function in a lambda.
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> &&
             std::is_object_v<std::remove_reference_t<F>> &&
             std::is_invocable_r_v<R, std::remove_reference_t<F>&, Args...>)
  [[gnu::always_inline]] constexpr FunctionRef(F&& f)
      : object_(const_cast<std::remove_cvref_t<F>*>(__builtin_addressof(f))),
        call_(&call_object<std::remove_reference_t<F>>) {}
  /// Refers to the member function `member` of `object`.
  template <auto member, class Object>
  constexpr FunctionRef(Constant<member>, Object& object)
      : object_(const_cast<std::remove_cv_t<Object>*>(__builtin_addressof(object))),
        call_(&call_member<member, Object>) {}
  /// Deleted, since a temporary would be destroyed after the assignment: assign another reference,
  /// or `{}`.
  template <class F>
    requires(!std::same_as<F, FunctionRef>)
  FunctionRef& operator=(F) = delete;

  constexpr explicit operator bool() const { return call_ != nullptr; }
  constexpr R operator()(Args... args) const {
    return call_(object_, static_cast<Args&&>(args)...);
  }

 private:
  // Functions instead of lambdas in the constructors, which would be three functions each.
  template <class Object>
  static constexpr R call_object(void* object, Args... args) {
    return static_cast<R>((*static_cast<Object*>(object))(static_cast<Args&&>(args)...));
  }
  template <auto member, class Object>
  static constexpr R call_member(void* object, Args... args) {
    return static_cast<R>((static_cast<Object*>(object)->*member)(static_cast<Args&&>(args)...));
  }

  void* object_ = nullptr;
  R (*call_)(void*, Args...) = nullptr;
};

}  // namespace lockstep
