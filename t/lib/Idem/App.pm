package Idem::App;

# The application behind the server: every execution leaves one line in the file `effects`, and the test says by
# parameters what the application does. The same code is a CGI script and a small HTTP server. Core only and few
# modules, because a CGI loads it each time.
#
# Parameters come from the query and from the file `behave` (a query string too; the query wins), so that a test
# can change what the application does without changing the request:
#   status=201 type=text/csv (none: no such field) body=TEXT size=N octets=all echo=1 header=Name:Value (repeat)
#   outcome=failed    Idempotency-Outcome
#   sleep=SECONDS     after the effect, before the answer
#   hold=1            as long as the file `release` is not there (30 s at most)
#   pieces=N gap=S    the body in N flushed pieces, S seconds apart
#   stop=N            hold as above, but before piece N (from 1)
#   length=N          announce this length whatever is sent
#   die=before|headers|body   end by SIGKILL there (a server: close the connection)
#   exit=N            end with this status before any header, nothing on stderr
#   late=1            the effect at the end and not at the beginning
#   read=0            answer without reading the body
#   interim=103       a server: this response first; trailer=Name:Value  a server: in chunks, and this after them
# The server keeps the connection open for paths below /keep.

use strict;
use warnings;
use Digest::SHA ();
use Fcntl ();
use Time::HiRes ();

sub unescape { my ($s) = @_; $s =~ tr/+/ /; $s =~ s/%([0-9A-Fa-f]{2})/chr hex $1/ge; return $s }

sub slurp { open(my $fh, '<:raw', $_[0]) or return ''; local $/; return scalar(<$fh>) // '' }

sub parameters {
    my ($root, $query) = @_;
    my %p;
    for my $source (slurp("$root/behave"), $query // '') {
        my %here;
        for my $pair (split /[&\n]/, $source) {
            my ($name, $value) = map { unescape($_) } split /=/, $pair, 2;
            push @{ $here{$name} }, $value // '' if defined $name;
        }
        %p = (%p, %here);
    }
    return \%p;
}

sub quote {
    my ($s) = @_;
    return 'null' unless defined $s;
    $s =~ s/([^ !#-\[\]-~])/sprintf '\\u%04x', ord $1/ge;
    return "\"$s\"";
}

# A flat JSON object of pairs; a value that is a reference to a string is put in as it is.
sub object {
    my @pairs = @_;
    my @out;
    while (my ($name, $value) = splice @pairs, 0, 2) {
        push @out, quote($name) . ':' . (ref $value ? $$value : quote($value));
    }
    return '{' . join(',', @out) . '}';
}

sub note {
    my ($root, @pairs) = @_;
    open(my $fh, '>>:raw', "$root/effects") or die "effects: $!";
    syswrite $fh, object(@pairs) . "\n";
    close $fh;
}

# answer(root, request, output): request is { method, path, query, body, env }, output has head(status, [n, v ..]),
# write(octets), flush and die.
sub answer {
    my ($root, $request, $output) = @_;
    my $p = parameters($root, $request->{query});
    my $one = sub { my $v = $p->{ $_[0] }; return $v ? $v->[-1] : undef };
    my $env = $request->{env};
    my $id = sprintf 'id_%08x%08x%04x', int(Time::HiRes::time() * 1e4) & 0xffffffff, int rand 0xffffffff, $$ & 0xffff;
    my $body = $request->{body} // '';
    my @facts = (id => $id, method => $request->{method}, path => $request->{path}, query => $request->{query},
        length => \length $body, sha256 => Digest::SHA::sha256_hex($body), announced => $env->{CONTENT_LENGTH},
        user => $env->{REMOTE_USER}, key => $env->{HTTP_IDEMPOTENCY_KEY}, pid => \$$);
    note($root, event => 'effect', @facts) unless $one->('late');
    hold($root) if $one->('hold');
    Time::HiRes::sleep($one->('sleep')) if $one->('sleep');
    exit $one->('exit') if defined $one->('exit');
    my $die = $one->('die') // '';
    $output->{die}->() if $die eq 'before';

    my %shown = map { $_ => $env->{$_} } grep { /^(?:REDIRECT_)*(?:IDEMPOTENCY|HTTP_|REMOTE_USER|PATH_INFO|REQUEST_URI|CONTENT_)/ } keys %$env;
    my $content = defined $one->('size') ? pattern($one->('size'))
        : defined $one->('echo') ? $body
        : defined $one->('octets') ? join('', map { chr } 0 .. 255)
        : defined $one->('body') ? $one->('body')
        : object(@facts, env => \object(map { $_ => $shown{$_} } sort keys %shown));
    my $type = $one->('type') // 'application/json';
    my @fields = $type eq 'none' ? () : ('Content-Type' => $type);
    push @fields, map { split /:\s*/, $_, 2 } @{ $p->{header} || [] };
    push @fields, 'Idempotency-Outcome' => $one->('outcome') if defined $one->('outcome');
    push @fields, 'Content-Length' => $one->('length') if defined $one->('length');
    my $status = $one->('status') // 200;
    $content = '' if $status == 204 || $status == 304;
    $output->{half_head}->($status, \@fields) if $die eq 'headers';
    $output->{head}->($status, \@fields);
    if ($die eq 'body') {
        $output->{write}->(substr $content, 0, int(length($content) / 2));
        $output->{flush}->();
        $output->{die}->();
    }
    my $pieces = $one->('pieces') // 1;
    my $each = int(length($content) / $pieces) + 1;
    for my $n (0 .. $pieces - 1) {
        last if $n * $each >= length $content;
        Time::HiRes::sleep($one->('gap')) if $n && $one->('gap');
        hold($root) if ($one->('stop') // 0) == $n + 1;
        $output->{write}->(substr $content, $n * $each, $each);
        $output->{flush}->() if $pieces > 1;
    }
    note($root, event => 'effect', @facts) if $one->('late');
    note($root, event => 'end', id => $id);
}

sub hold {
    my ($root) = @_;
    my $until = Time::HiRes::time() + 30;
    Time::HiRes::sleep(0.02) while !-e "$root/release" && Time::HiRes::time() < $until;
}

# N octets that differ from place to place, so that a cut or a swap shows.
sub pattern {
    my ($size) = @_;
    my $text = '';
    $text .= sprintf "%07d\n", length($text) / 8 while length $text < $size;
    return substr $text, 0, $size;
}

sub cgi {
    my ($root) = @_;
    binmode $_ for \*STDIN, \*STDOUT;
    my $p = parameters($root, $ENV{QUERY_STRING});
    my $body = '';
    if (!$p->{read} || $p->{read}[-1]) {
        1 while read STDIN, $body, 65_536, length $body;
    }
    my $print = sub { print STDOUT @_ };
    my $fields = sub { my @f = @{ $_[0] }; my $t = ''; while (my ($n, $v) = splice @f, 0, 2) { $t .= "$n: $v\n" } return $t };
    my $kill = sub { STDOUT->flush; kill KILL => $$; sleep 5 };
    require IO::Handle;
    answer($root, { method => $ENV{REQUEST_METHOD}, path => ($ENV{SCRIPT_NAME} // '') . ($ENV{PATH_INFO} // ''),
        query => $ENV{QUERY_STRING}, body => $body, env => \%ENV }, {
        head => sub { $print->("Status: $_[0]\n", $fields->($_[1]), "\n") },
        half_head => sub { $print->("Status: $_[0]\n", 'Content-Ty'); $kill->() },
        write => $print, flush => sub { STDOUT->flush }, die => $kill,
    });
    STDOUT->flush;
}

# One request, one process, one connection: serve(root, port) never returns.
sub serve {
    my ($root, $port) = @_;
    require IO::Socket::INET;
    my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 128, ReuseAddr => 1)
        or die "port $port: $@";
    $SIG{$_} = 'IGNORE' for qw(CHLD PIPE);
    while (1) {
        my $client = $listen->accept or next;
        my $pid = fork;
        if (defined $pid && !$pid) {
            close $listen;
            srand;
            1 while serve_one($root, $client);
            exit 0;
        }
        close $client;
    }
}

# True where the connection stays open for another request.
sub serve_one {
    my ($root, $client) = @_;
    binmode $client;
    my ($method, $target) = (<$client> // return 0) =~ /^(\S+) (\S+)/ or return 0;
    my %env;
    while (defined(my $line = <$client>)) {
        last if $line =~ /^\r?\n/;
        my ($name, $value) = $line =~ /^([^:]+):\s*(.*?)\s*$/ or next;
        $name = uc $name;
        $name =~ tr/-/_/;
        $name = "HTTP_$name" unless $name =~ /^CONTENT_(?:TYPE|LENGTH)$/;
        $env{$name} = defined $env{$name} ? "$env{$name}, $value" : $value;
    }
    my ($path, $query) = split /\?/, $target, 2;
    my $p = parameters($root, $query);
    my $print = sub { print $client @_; $client->flush };
    my $end = sub { $client->flush; shutdown $client, 2; exit 0 };
    $print->("HTTP/1.1 100 Continue\r\n\r\n") if ($env{HTTP_EXPECT} // '') =~ /100-continue/i;
    my $body = read_body($client, \%env);
    $print->(map { "HTTP/1.1 $_ Early\r\nLink: </style.css>; rel=preload\r\n\r\n" } @{ $p->{interim} || [] });
    my $fields = sub { my @f = @{ $_[0] }; my $t = ''; while (my ($n, $v) = splice @f, 0, 2) { $t .= "$n: $v\r\n" } return $t };
    my $keep = $path =~ m{^/keep};
    my $chunks = $keep || $p->{trailer};
    my $start = "Connection: " . ($keep ? 'keep-alive' : 'close') . "\r\n" . ($chunks ? "Transfer-Encoding: chunked\r\n" : '');
    answer($root, { method => $method, path => $path, query => $query, body => $body, env => \%env }, {
        head => sub { $print->("HTTP/1.1 $_[0] Status\r\n$start", $fields->($_[1]), "\r\n") },
        half_head => sub { $print->("HTTP/1.1 $_[0] Status\r\nContent-Ty"); $end->() },
        write => sub { my $data = join '', @_; $print->($chunks ? length $data ? sprintf("%x\r\n%s\r\n", length $data, $data) : '' : $data) },
        flush => sub { $client->flush }, die => $end,
    });
    $print->("0\r\n", map({ "$_\r\n" } @{ $p->{trailer} || [] }), "\r\n") if $chunks;
    shutdown $client, 1 unless $keep;
    return $keep;
}

sub read_body {
    my ($client, $env) = @_;
    my $body = '';
    if (($env->{HTTP_TRANSFER_ENCODING} // '') =~ /chunked/) {
        while (defined(my $size = <$client>)) {
            $size = hex(($size =~ /^([0-9a-fA-F]+)/)[0] // 0) or last;
            read $client, $body, $size, length $body;
            <$client>;
        }
        <$client>;
    }
    elsif ($env->{CONTENT_LENGTH}) {
        read $client, $body, $env->{CONTENT_LENGTH};
    }
    return $body;
}

1;
