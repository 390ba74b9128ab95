# C094 C102 Every backend, under both MPMs, by every protocol, with and without a length, with bodies around the sizes at which
# somebody's buffer ends: the octets arrive, the effect happens once, the octets come back, and come back again. The
# largest body goes once by each backend and protocol, without a length: a cell of 5 MiB costs as much as all the others.
use strict;
use warnings;
use Idem::Curl;
use Idem::Test;

my @SIZES = (0, 1, 8191, 8192, 65_537, 5 * 1024 * 1024);
# Where a kind of backend can run, and by which of the protocols. httpd's HTTP/2 does not work under prefork.
my @TABLE = (
    [ cgi => [qw(event prefork)] ],       # mod_cgid under event, mod_cgi under prefork
    [ fpm => [qw(event prefork)] ],
    [ fpm_tcp => ['event'] ],
    [ fcgid => [qw(event prefork)] ],
    [ php => ['prefork'] ],
    [ proxy_off => [qw(event prefork)] ], # a connection for each request
    [ proxy => [qw(event prefork)], '/keep' ],
    [ lua => [qw(event prefork)] ],
);
my %PROTOCOLS = (event => [qw(http/1.1 h2c h2)], prefork => ['http/1.1']);
my $LARGEST = $SIZES[-1];

sub pattern { my ($size) = @_; my $text = ''; $text .= sprintf "%06x\r\n", length($text) while length $text < $size; return substr $text, 0, $size }
my %body = map { $_ => pattern($_) } @SIZES;
my $pg;

for my $mpm (qw(event prefork)) {
    my @rows = grep { grep { $_ eq $mpm } @{ $_->[1] } } @TABLE;
    my $tls = free_port();
    my $t = Idem::Test->new(mpm => $mpm, pg => $pg, backends => [ map { $_->[0] =~ s/_off//r } @rows ], modules => [ $mpm eq 'event' ? qw(http2 socache_shmcb ssl) : () ],
        config => sub {
            my ($t) = @_;
            return join "\n", "FcgidMaxRequestLen 16777216\nFcgidIPCDir $t->{root}/run/fcgid\nFcgidProcessTableFile $t->{root}/run/fcgid.shm",
                $mpm eq 'event' ? ('Protocols h2 h2c http/1.1', Idem::Curl::tls($t->root, $tls)) : (),
                map { protected({ by => $_->[0] }, $_->[2] // "/$_->[0]", $_->[0], 'IdempotencyMaxSnapshot 8M') } @rows;
        });
    $pg = $t->pg;
    my %curl = (h2c => Idem::Curl->new(base => 'http://localhost:' . $t->httpd->port, user => 'a', options => ['http2-prior-knowledge']),
        h2 => Idem::Curl->new(base => "https://localhost:$tls", user => 'a', options => [qw(http2 insecure)]));

    for my $row (@rows) {
        for my $protocol (@{ $PROTOCOLS{$mpm} }) {
            my $name = "$row->[0], $mpm, $protocol";
            my $target = ($row->[2] // "/$row->[0]") . ($row->[0] eq 'cgi' || $row->[0] eq 'lua' ? '' : '/x') . '?echo=1&type=application/octet-stream';
            my @cells;
            for my $size (@SIZES) {
                push @cells, map { { size => $size, framing => $_, key => fresh_key() } } grep { $_ eq 'chunked' || $size < $LARGEST } qw(length chunked);
            }
            subtest $name => sub {
                my @answers = ask($t, $curl{$protocol}, $target, @cells);
                my %effects;
                push @{ $effects{ $_->{key} =~ s/"//gr } }, $_ for $t->backend->effects;
                for my $cell (@cells) {
                    my $what = "$cell->{size} octets, $cell->{framing}";
                    my ($first, $second) = splice @answers, 0, 2;
                    $_ //= bless { status => 0, fields => [], body => '' }, 'Idem::Response' for $first, $second;
                    is($first->status, 200, "$what: runs") or diag($first->body);
                    is($first->{version}, $protocol eq 'http/1.1' ? '1.1' : '2', "$what: the protocol") if $first->status;
                    same_octets($first->body, $body{ $cell->{size} }, "$what: the octets go in and out");
                    same_octets($second->body, $body{ $cell->{size} }, "$what: and come again");
                    ok($second->replayed && !$first->replayed && $second->operation eq $first->operation && $second->status == 200
                        && $second->header('Content-Type') eq $first->header('Content-Type'), "$what: a replay");
                    my @effects = @{ $effects{ $cell->{key} } || [] };
                    is(scalar @effects, 1, "$what: one effect");
                    is($effects[0]{length}, $cell->{size}, "$what: the length that the application counted");
                    # HTTP/2 need not announce an empty body by a length, nor does anybody behind it see one
                    is($effects[0]{announced}, $cell->{size}, "$what: the length that it was told") if $cell->{size};
                }
            };
        }
    }
    $t->httpd->allow_log(qr/mod_fcgid: (?:process|stderr)/) if $t->backend->has('fcgid');
    $t->finish(more => $mpm eq 'event');
}

# Each cell twice, over one connection.
sub ask {
    my ($t, $curl, $target, @cells) = @_;
    if ($curl) {
        return $curl->batch(map { my %r = (key => $_->{key}, type => 'application/octet-stream', body => $body{ $_->{size} }, chunked => $_->{framing} eq 'chunked'); ([ POST => $target, %r ]) x 2 } @cells);
    }
    my $c = $t->client;
    my $on = $c->connect;
    my @answers;
    for my $cell (@cells) {
        my $body = $body{ $cell->{size} };
        for (1 .. 2) {
            push @answers, $c->post($target, key => $cell->{key}, type => 'application/octet-stream', on => $on, keep => 1,
                $cell->{framing} eq 'length' ? (body => $body) : (chunks => [ unpack '(a7919)*', $body ]));
            $on = $c->connect if ($answers[-1]->header('Connection') // '') =~ /close/i;
        }
    }
    return @answers;
}
