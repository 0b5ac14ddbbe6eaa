/// \file
/// Does nothing: the target of which it is the only source makes the precompiled headers of the tests.
int main() {}
