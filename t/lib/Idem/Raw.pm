package Idem::Raw;

# Applications that say, octet by octet, what no decent one would: a server of HTTP and a responder of FastCGI. What they
# say stands in the file `raw`, so that it can change while the request stays the same. Every request leaves a line in
# `effects`, as the application's own do. Core only; a copy runs beside the application.

use strict;
use warnings;
use Idem::App;
use IO::Socket::INET;
use POSIX ();

# serve(\&one, $root): (pid, port) of a process of its own that gives each connection to one($socket, $root).
sub serve {
    my ($one, $root) = @_;
    my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 16) or die "listen: $!\n";
    my $port = $listen->sockport;
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);
        $SIG{PIPE} = 'IGNORE';
        open STDOUT, '>', '/dev/null';
        open STDERR, '>', '/dev/null';
        $SIG{CHLD} = 'IGNORE';
        while (my $socket = $listen->accept) {
            # each in a process: an upgraded one stays
            my $child = fork // next;
            if (!$child) {
                close $listen;
                eval { $one->($socket, $root) };
                POSIX::_exit(0);
            }
            close $socket;
        }
        POSIX::_exit(0);
    }
    return ($pid, $port);
}

sub effect { my ($root, $key) = @_; Idem::App::note($root, event => 'effect', key => $key) }

# One request of HTTP. With Upgrade and nothing in `raw`: switches, and says each line twice until the client leaves.
sub http {
    my ($socket, $root) = @_;
    my $text = '';
    while ($text !~ /\r\n\r\n/) {
        sysread $socket, $text, 4096, length $text or return;
    }
    my ($head, $body) = split /\r\n\r\n/, $text, 2;
    my ($length) = $head =~ /^content-length: *(\d+)/mi;
    while (length $body < ($length // 0)) {
        sysread $socket, $body, 4096, length $body or return;
    }
    my ($key) = $head =~ /^idempotency-key: *(.*?)\r?$/mi;
    effect($root, $key);
    my $raw = Idem::App::slurp("$root/raw");
    if ($raw eq '' && $head =~ /^upgrade: *(\S+)/mi) {
        syswrite $socket, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: $1\r\nConnection: Upgrade\r\n\r\n";
        while (sysread $socket, my $line, 4096) {
            syswrite $socket, $line . $line;
        }
        return;
    }
    syswrite $socket, $raw eq '' ? "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n" : $raw;
}

sub record { my ($type, $id, $content) = @_; return pack('CCnnCC', 1, $type, $id, length $content, 0, 0) . $content }

# One request of FastCGI. `raw` is what stands on its standard output; with "CUT" at its end the connection ends there.
sub fastcgi {
    my ($socket, $root) = @_;
    my ($id, $params) = (1, '');
    my $get = sub {
        my ($n) = @_;
        my $octets = '';
        while (length $octets < $n) {
            sysread $socket, $octets, $n - length $octets, length $octets or die "gone\n";
        }
        return $octets;
    };
    while (1) {
        (my (undef, $type), $id, my ($length, $padding)) = unpack 'CCnnC', $get->(8);
        my $content = $get->($length);
        $get->($padding);
        $params .= $content if $type == 4;
        last if $type == 5 && !$length;
    }
    effect($root, $params =~ /HTTP_IDEMPOTENCY_KEY("[^"]*")/ ? $1 : undef);
    my $raw = Idem::App::slurp("$root/raw");
    $raw = "Content-Type: text/plain\r\n\r\nok\n" if $raw eq '';
    my $cut = $raw =~ s/CUT\z//;
    syswrite $socket, ($raw eq '' ? '' : record(6, $id, $raw)) . ($cut ? '' : record(6, $id, '') . record(3, $id, pack('NCx3', 0, 0)));
}

1;
