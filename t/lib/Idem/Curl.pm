package Idem::Curl;

# Requests over HTTP/2 (or whatever else curl speaks), many of them in one run of curl and so on one connection.

use strict;
use warnings;
use Idem::Response;
use Idem::Util;

# new(base => 'http://localhost:N', user => name, options => ['http2-prior-knowledge', 'insecure'])
sub new {
    my ($class, %arg) = @_;
    my $self = bless { options => [], folder => own_folder('curl'), %arg }, $class;
    return $self;
}

# One response for each request [METHOD, target, key =>, body =>, headers => [n, v], chunked => 1]; undef where none came.
# The exit status of curl is in ->{status}.
# curl of Debian 12 cannot use an HTTP/2 connection again that it began by prior knowledge: then a run for each.
sub batch {
    my ($self, @requests) = @_;
    return map { $self->batch($_) } @requests if @requests > 1 && grep { /prior-knowledge/ } @{ $self->{options} };
    my $dir = $self->{folder};
    my $bodies = 0;
    my (@config, %file);
    for my $n (0 .. $#requests) {
        my ($method, $target, %arg) = @{ $requests[$n] };
        my @headers = @{ $arg{headers} || [] };
        push @headers, 'Idempotency-Key', "\\\"$arg{key}\\\"" if defined $arg{key};
        push @config, ($n ? 'next' : ()), @{ $self->{options} }, 'silent', 'globoff', 'max-time = 60', "request = $method", "url = \"$self->{base}$target\"",
            "output = \"$dir/out.$n\"", "dump-header = \"$dir/head.$n\"";
        push @config, "user = \"$self->{user}:$self->{user}\"" if defined $self->{user};
        if (defined $arg{body}) {
            # A body without a length: HTTP/2 simply ends it.
            push @headers, 'Content-Type', $arg{type} // 'application/json';
            push @config, 'header = "Content-Length:"' if $arg{chunked};
            push @config, 'header = "Expect:"' unless $arg{expect};
            $file{ $arg{body} } //= spew("$dir/body." . ++$bodies, $arg{body}, 0644);
            push @config, "data-binary = \"\@$file{$arg{body}}\"";
        }
        while (my ($name, $value) = splice @headers, 0, 2) {
            push @config, "header = \"$name: $value\"";
        }
        unlink "$dir/out.$n", "$dir/head.$n";
    }
    spew("$dir/config", join("\n", @config) . "\n", 0644);
    ($self->{status}, $self->{said}) = run(cmd => [ 'curl', '-K', "$dir/config" ], dir => $dir, timeout => 120);
    return map { $self->response("$dir/head.$_", "$dir/out.$_") } 0 .. $#requests;
}

sub response {
    my ($self, $head, $out) = @_;
    return undef unless -s $head;
    my @heads = map { Idem::Response->parse($_) } grep { length } split /(?<=\r\n)\r\n/, slurp($head);
    my $response = pop @heads;
    @$response{qw(body interim framing complete)} = (-e $out ? slurp($out) : '', \@heads, 'none', 1);
    return $response;
}

sub post { my ($self, $target, %arg) = @_; return ($self->batch([ POST => $target, %arg ]))[0] }

# A key and a self-made certificate for a server of its own, in the folder; the lines that use them.
sub tls {
    my ($root, $port) = @_;
    my ($status, $said) = run(dir => $root, cmd => [ qw(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost),
        '-addext', 'basicConstraints=critical,CA:FALSE', '-keyout', "$root/tls.key", '-out', "$root/tls.crt" ]);
    die "openssl: $said" if $status;
    return <<"CONF";
Listen 127.0.0.1:$port
SSLSessionCache shmcb:$root/run/tls(512000)
<VirtualHost 127.0.0.1:$port>
    ServerName localhost
    SSLEngine On
    SSLCertificateFile $root/tls.crt
    SSLCertificateKeyFile $root/tls.key
</VirtualHost>
CONF
}

1;
