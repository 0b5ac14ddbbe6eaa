// Macros of headers that programs include before lockstep's: Qt's keywords, X11, GLib.
#pragma once

// Qt: qobjectdefs.h, qforeach.h
#define slots
#define signals public
#define emit
#define foreach(variable, container) for (variable : container)
#define forever for (;;)
#define Q_OBJECT

// X11: X.h, Xlib.h, Xutil.h, Xdefs.h
#define Bool int
#define Status int
#define True 1
#define False 0
#define None 0L
#define Success 0
#define Always 2
#define WhenMapped 1
#define NotUseful 0
#define Above 0
#define Below 1
#define TopIf 2
#define BottomIf 3
#define Opposite 4
#define Unsorted 0
#define Complex 0
#define Nonconvex 1
#define Convex 2
#define CurrentTime 0L
#define ParentRelative 1L
#define CopyFromParent 0L
#define InputOutput 1
#define InputOnly 2
#define KeyPress 2
#define KeyRelease 3
#define ButtonPress 4
#define Expose 12
#define FocusIn 9
#define FocusOut 10
#define CursorShape 0
#define GrayScale 1
#define TrueColor 4
#define DirectColor 5
#define AllValues 0x000F
#define NoValue 0x0000
#define NormalState 1
#define BadRequest 1
#define BadValue 2
#define BadMatch 8
#define BadAccess 10
#define BadAlloc 11
#define BadLength 16

// GLib, and logging libraries
#define MIN(a, b) (((a) < (b)) ? (a) : (b))
#define MAX(a, b) (((a) > (b)) ? (a) : (b))
#define CLAMP(x, low, high) (((x) > (high)) ? (high) : (((x) < (low)) ? (low) : (x)))
#define TRUE 1
#define FALSE 0
#define DEBUG 0
#define INFO 1
#define WARNING 2
#define ERROR 3
#define FATAL 4
#define LOG(severity) if (severity > ERROR)
#define CHECK(condition) if (!(condition))
